//! Compares what a policy answers with what a case expects.

use std::time::Duration;

use reprise_broker::domain::decision::{Answer, AnswerAction};
use reprise_broker::policy::Program;
use serde_json::Value;

use crate::case::{Case, Object, Problem};

/// Asks the policy about a case.
pub(crate) fn holds(program: &Program, case: &Case) -> Result<(), Problem> {
    let expect = Object::expectation(&case.expect);
    let verdict = program.check(&case.params).map_err(|fault| format!("check: {fault}"))?;
    match (verdict, case.expects_refusal()) {
        (Ok(()), true) => Err("the parameters were not refused".to_owned()),
        (Err(text), false) => Err(format!("the parameters were refused: {text}")),
        (Err(text), true) => contains(&expect, "reason_contains", &text),
        (Ok(()), false) => {
            let answer = program.decide(&case.context).result.map_err(|fault| format!("decide: {fault}"))?;
            compare(&expect, &answer).map_err(|problem| format!("{problem}; answered {answer:?}"))
        }
    }
}

fn compare(expect: &Object<'_>, answer: &Answer) -> Result<(), Problem> {
    let action = expect.text("action")?.unwrap_or_default();
    match (action.as_str(), &answer.action) {
        ("retry", AnswerAction::Retry { delay }) => {
            let exact = expect.duration("delay")?;
            let least = expect.duration("delay_min")?.or(exact).unwrap_or(Duration::ZERO);
            let most = expect.duration("delay_max")?.or(exact).unwrap_or(Duration::MAX);
            if *delay < least || *delay > most {
                return Err(format!("a delay of {least:?} to {most:?} was expected"));
            }
        }
        ("dead_letter", AnswerAction::DeadLetter { queue, reason, labels }) => {
            if let Some(wanted) = expect.get("queue")
                && wanted.as_str() != queue.as_deref()
            {
                return Err(format!("the queue {wanted} was expected"));
            }
            contains(expect, "reason_contains", reason)?;
            for (name, value) in expect.get("labels").and_then(Value::as_object).into_iter().flatten() {
                if !labels.iter().any(|(had, is)| had == name && value == is) {
                    return Err(format!("the label {name}={value} was expected"));
                }
            }
        }
        ("drop", AnswerAction::Drop { reason }) => contains(expect, "reason_contains", reason)?,
        ("forward", AnswerAction::Forward { topic }) => {
            if expect.text("topic")?.is_some_and(|wanted| wanted != *topic) {
                return Err(format!("the topic {:?} was expected", expect.get("topic")));
            }
        }
        _ => return Err(format!("{action} was expected")),
    }
    contains(expect, "note_contains", answer.note.as_deref().unwrap_or_default())?;
    let pause = answer.pause.as_ref().map(|pause| pause.duration);
    match expect.get("pause") {
        None => Ok(()),
        Some(_) if pause == expect.duration("pause")? => Ok(()),
        Some(wanted) => Err(format!("a pause of {wanted} was expected")),
    }
}

fn contains(expect: &Object<'_>, field: &str, text: &str) -> Result<(), Problem> {
    match expect.text(field)? {
        Some(part) if !text.contains(&part) => Err(format!("{field}: {part:?} is not in {text:?}")),
        _ => Ok(()),
    }
}
