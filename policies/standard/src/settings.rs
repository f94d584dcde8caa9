//! The parameters of the standard policy: their names, defaults, meaning and limits.
//!
//! Everything is read from the JSON text in one pass for each decision, and the classes only when a
//! failure has one of them: a decision pays for what it uses.

use std::borrow::Cow;

use reprise_policy::duration::format;
use reprise_policy::prelude::*;

const MAX_ATTEMPTS: u32 = 5;
const DELAY: Duration = secs(5);
const FACTOR: f64 = 2.0;
const MAX_DELAY: Duration = mins(10);

/// Far beyond any sense, and beyond the broker's own `attempt_limit`: more is a slip.
const MOST_ATTEMPTS: u64 = 1_000_000;

/// Beyond it the second delay is the longest one anyway.
const LARGEST_FACTOR: f64 = 1_000.0;

/// How many delays a list may hold.
const LONGEST_LIST: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Exponential,
    Linear,
    Fixed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Jitter {
    Full,
    Equal,
    None,
}

/// How long to wait, before growth and jitter.
#[derive(Clone, Copy, Debug)]
enum Delay<'a> {
    One(Duration),
    /// A checked JSON list; the last one repeats.
    List(Value<'a>),
}

/// What becomes of a message whose time to live has passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OnExpired {
    DeadLetter,
    Drop,
    Retry,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) max_attempts: u32,
    delay: Delay<'a>,
    shape: Shape,
    factor: f64,
    /// None: [`MAX_DELAY`], or the longest `delay` if that is longer.
    max_delay: Option<Duration>,
    /// None: equal where the delay grows, none where it is spelled out.
    jitter: Option<Jitter>,
    classes: Option<Params<'a>>,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self {
            max_attempts: MAX_ATTEMPTS,
            delay: Delay::One(DELAY),
            shape: Shape::Exponential,
            factor: FACTOR,
            max_delay: None,
            jitter: None,
            classes: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum RuleAction {
    #[default]
    Retry,
    DeadLetter,
    Drop,
}

/// What holds for one failure class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule<'a> {
    pub(crate) action: RuleAction,
    pub(crate) queue: Option<Cow<'a, str>>,
    pub(crate) reason: Option<Cow<'a, str>>,
    /// Settings of its own; none if it has those of all.
    pub(crate) settings: Option<Settings<'a>>,
}

/// The names a rule of a class may have.
const RULE_NAMES: [&str; 9] =
    ["action", "queue", "reason", "max_attempts", "delay", "backoff", "factor", "max_delay", "jitter"];

pub(crate) fn describe(description: Description) -> Description {
    use ParamKind::{Duration, Number, Object, Text};
    description
        .param(
            Param::new("max_attempts", Number, "after this many failures the delivery is dead-lettered; released attempts do not count")
                .default("5"),
        )
        .param(
            Param::new("delay", Duration, "the first delay; or a list of delays, which is the whole schedule and whose last one repeats")
                .default("\"5s\""),
        )
        .param(
            Param::new("backoff", Text, "how the delay grows: exponential, linear or fixed; a list does not grow")
                .default("\"exponential\""),
        )
        .param(
            Param::new("factor", Number, "what an exponential delay is multiplied by each time, from 1 to 1000")
                .default("2"),
        )
        .param(
            Param::new("max_delay", Duration, "the longest delay, also for a consumer's `retry_after`; without it 10m, or `delay` if that is longer")
                .default("null"),
        )
        .param(
            Param::new("jitter", Text, "full (0 to the delay), equal (half the delay to the delay) or none; without it equal for a growing delay, none for a fixed one or a list")
                .default("null"),
        )
        .param(
            Param::new("on_expired", Text, "when the message's time to live passes: dead_letter, drop, or retry to deliver it all the same")
                .default("\"dead_letter\""),
        )
        .param(
            Param::new("classes", Object, "rules for failure classes by name, each with any of action (retry, dead_letter, drop), queue, reason, max_attempts, delay, backoff, factor, max_delay, jitter")
                .default("{}"),
        )
}

/// Refuses what the policy would not understand.
pub(crate) fn check(description: &Description, params: Params<'_>) -> Result<(), ParamError> {
    description.check_names(params)?;
    let settings = Settings::read(params)?;
    if let Some(value) = params.get("on_expired") {
        read_on_expired(value).map_err(|error| error.within("on_expired"))?;
    }
    let Some(classes) = settings.classes else {
        return Ok(());
    };
    let mut seen = Vec::new();
    for (class, rule) in classes.entries() {
        let wrong = |error: ParamError| error.within(&class).within("classes");
        if seen.contains(&class) {
            return Err(wrong(ParamError::new("", "given twice")));
        }
        check_rule(rule, &settings).map_err(wrong)?;
        seen.push(class);
    }
    Ok(())
}

fn check_rule(value: Value<'_>, settings: &Settings<'_>) -> Result<(), ParamError> {
    let params = value.object()?;
    let mut seen = Vec::new();
    for (name, _) in params.entries() {
        if !RULE_NAMES.contains(&name.as_ref()) {
            return Err(ParamError::unknown(&name, &RULE_NAMES));
        }
        if seen.contains(&name) {
            return Err(ParamError::new(name, "given twice"));
        }
        seen.push(name);
    }
    let rule = Rule::read(params, settings)?;
    if rule.action != RuleAction::Retry && rule.settings.is_some() {
        let problem = "a class that is not retried has no attempts or delays of its own";
        return Err(ParamError::new("action", problem));
    }
    if rule.action == RuleAction::Drop && rule.queue.is_some() {
        return Err(ParamError::new("queue", "what is dropped goes to no queue"));
    }
    match rule.queue.as_deref() {
        Some("") => Err(ParamError::new("queue", "a queue's name cannot be empty")),
        _ => Ok(()),
    }
}

/// The answer to an expired message; the default if it cannot be read.
pub(crate) fn on_expired(params: Params<'_>) -> OnExpired {
    let value = params.get("on_expired");
    value.and_then(|value| read_on_expired(value).ok()).unwrap_or(OnExpired::DeadLetter)
}

fn read_on_expired(value: Value<'_>) -> Result<OnExpired, ParamError> {
    match value.text()?.as_ref() {
        "dead_letter" => Ok(OnExpired::DeadLetter),
        "drop" => Ok(OnExpired::Drop),
        "retry" => Ok(OnExpired::Retry),
        other => Err(choice(other, "dead_letter, drop or retry")),
    }
}

fn choice(given: &str, choices: &str) -> ParamError {
    ParamError::new("", ["must be ", choices, ", not \"", given, "\""].concat())
}

impl<'a> Settings<'a> {
    /// Reads what is there; the rest is the default.
    pub(crate) fn read(params: Params<'a>) -> Result<Self, ParamError> {
        let mut settings = Self::default();
        settings.overlay(params, |name, value, settings| {
            if name == "classes" {
                settings.classes = Some(value.object()?);
            }
            Ok(())
        })?;
        Ok(settings)
    }

    /// Takes every setting that `params` has, and gives all other entries to `other`. True if there
    /// was one.
    fn overlay(
        &mut self,
        params: Params<'a>,
        mut other: impl FnMut(&str, Value<'a>, &mut Self) -> Result<(), ParamError>,
    ) -> Result<bool, ParamError> {
        let (mut changed, mut delay_given) = (false, false);
        for (name, value) in params.entries() {
            let taken = self
                .take(&name, value)
                .and_then(|taken| match taken {
                    true => Ok(true),
                    false => other(&name, value, self).map(|()| false),
                })
                .map_err(|error| error.within(&name))?;
            changed |= taken;
            delay_given |= name == "delay";
        }
        match self.max_delay {
            Some(most) if delay_given && self.longest_delay() > most => {
                let most = format(most);
                Err(ParamError::new("delay", ["is longer than max_delay, ", &most].concat()))
            }
            _ => Ok(changed),
        }
    }

    /// Whether `name` is a setting, which is then taken.
    fn take(&mut self, name: &str, value: Value<'a>) -> Result<bool, ParamError> {
        match name {
            "max_attempts" => self.max_attempts = read_max_attempts(value)?,
            "delay" => self.delay = read_delay(value)?,
            "backoff" => self.shape = read_shape(value)?,
            "factor" => self.factor = read_factor(value)?,
            "max_delay" => self.max_delay = Some(value.duration()?),
            "jitter" => self.jitter = Some(read_jitter(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn longest_delay(&self) -> Duration {
        match self.delay {
            Delay::One(delay) => delay,
            Delay::List(list) => delays(list).max().unwrap_or_default(),
        }
    }

    /// What holds for this class.
    pub(crate) fn rule_for(&self, class: &str) -> Result<Rule<'a>, ParamError> {
        match self.classes.and_then(|classes| classes.get(class)) {
            Some(value) => Rule::read(value.object()?, self),
            None => Ok(Rule::default()),
        }
    }

    /// How long to wait after this failure.
    pub(crate) fn delay(&self, cx: &Context) -> Duration {
        let most = self.max_delay.unwrap_or_else(|| MAX_DELAY.max(self.longest_delay()));
        if let Some(hint) = cx.failure().retry_after() {
            return hint.min(most);
        }
        let (backoff, spelled_out) = match self.delay {
            Delay::One(delay) => match self.shape {
                Shape::Exponential => (backoff::exponential(delay).factor(self.factor), false),
                Shape::Linear => (backoff::linear(delay), false),
                Shape::Fixed => (backoff::fixed(delay), true),
            },
            Delay::List(list) => {
                let step = cx.failures().max(1) as usize;
                let delay = delays(list).take(step).last().unwrap_or(DELAY);
                (backoff::fixed(delay), true)
            }
        };
        let backoff = backoff.cap(most);
        match self.jitter {
            Some(Jitter::Full) => backoff.full_jitter(cx),
            Some(Jitter::Equal) => backoff.equal_jitter(cx),
            Some(Jitter::None) => backoff.no_jitter(cx),
            None if spelled_out => backoff.no_jitter(cx),
            None => backoff.equal_jitter(cx),
        }
    }
}

impl<'a> Rule<'a> {
    fn read(params: Params<'a>, settings: &Settings<'a>) -> Result<Self, ParamError> {
        let mut rule = Self::default();
        let mut own = settings.clone();
        let changed = own.overlay(params, |name, value, _| {
            match name {
                "action" => rule.action = read_action(value)?,
                "queue" => rule.queue = Some(value.text()?),
                "reason" => rule.reason = Some(value.text()?),
                _ => {}
            }
            Ok(())
        })?;
        rule.settings = changed.then_some(own);
        Ok(rule)
    }
}

/// The durations of a list that was checked.
fn delays(list: Value<'_>) -> impl Iterator<Item = Duration> {
    let items = list.list().ok().into_iter().flatten();
    items.map_while(|item| item.duration().ok())
}

fn read_max_attempts(value: Value<'_>) -> Result<u32, ParamError> {
    match value.whole()? {
        0 => Err(ParamError::new("", "use a number from 1: the first delivery is an attempt")),
        most @ 1..=MOST_ATTEMPTS => Ok(most as u32),
        _ => Err(ParamError::new("", "at most 1000000")),
    }
}

fn read_delay(value: Value<'_>) -> Result<Delay<'_>, ParamError> {
    if !value.is_list() {
        return Ok(Delay::One(value.duration()?));
    }
    let mut count = 0;
    for item in value.list()? {
        item.duration()?;
        count += 1;
    }
    match count {
        0 => Err(ParamError::new("", "a list of delays has at least one")),
        1..=LONGEST_LIST => Ok(Delay::List(value)),
        _ => Err(ParamError::new("", "a list of delays has at most 100")),
    }
}

fn read_factor(value: Value<'_>) -> Result<f64, ParamError> {
    match value.number()? {
        factor if (1.0..=LARGEST_FACTOR).contains(&factor) => Ok(factor),
        _ => Err(ParamError::new("", ["must be from 1 to 1000, not ", value.as_json()].concat())),
    }
}

fn read_shape(value: Value<'_>) -> Result<Shape, ParamError> {
    match value.text()?.as_ref() {
        "exponential" => Ok(Shape::Exponential),
        "linear" => Ok(Shape::Linear),
        "fixed" => Ok(Shape::Fixed),
        other => Err(choice(other, "exponential, linear or fixed")),
    }
}

fn read_jitter(value: Value<'_>) -> Result<Jitter, ParamError> {
    match value.text()?.as_ref() {
        "full" => Ok(Jitter::Full),
        "equal" => Ok(Jitter::Equal),
        "none" => Ok(Jitter::None),
        other => Err(choice(other, "full, equal or none")),
    }
}

fn read_action(value: Value<'_>) -> Result<RuleAction, ParamError> {
    match value.text()?.as_ref() {
        "retry" => Ok(RuleAction::Retry),
        "dead_letter" => Ok(RuleAction::DeadLetter),
        "drop" => Ok(RuleAction::Drop),
        other => Err(choice(other, "retry, dead_letter or drop")),
    }
}
