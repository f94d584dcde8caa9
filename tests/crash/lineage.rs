//! What the broker has answered about its policies, and what therefore must hold after any number of kills.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// One per broker; the actor and the workers share it.
#[derive(Default)]
pub(crate) struct Lineage {
    /// The revisions that were answered, by number.
    known: BTreeMap<u64, Known>,
    /// What may be active: the last one that was answered, and the target of a rollback on its way.
    pub(crate) active: BTreeSet<u64>,
    /// An upload on its way.
    pub(crate) in_flight: Option<Known>,
    /// Nacks that were answered and are not among the records that were read, by message and attempt.
    decided: BTreeMap<(String, u64), Value>,
    /// Attempts that have a record.
    recorded: BTreeSet<(String, u64)>,
    /// The number of the newest record that was read.
    pub(crate) newest: u64,
    pub(crate) uploads: u64,
    pub(crate) rollbacks: u64,
    pub(crate) backtests: u64,
}

/// A revision as it was uploaded.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) digest: String,
    pub(crate) params: Value,
    /// What it answers; `None` for the standard policy.
    pub(crate) delay: Option<String>,
    /// It breaks at each decision.
    pub(crate) broken: bool,
    pub(crate) quarantined: bool,
}

impl Lineage {
    /// With the revision that every subscription begins with.
    pub(crate) fn of_standard(revision: &Value) -> Self {
        let digest = revision["digest"].as_str().expect("a digest").to_owned();
        let standard = Known {
            digest,
            params: revision["params"].clone(),
            delay: None,
            broken: false,
            quarantined: false,
        };
        Self { known: BTreeMap::from([(1, standard)]), active: BTreeSet::from([1]), ..Self::default() }
    }

    fn last(&self) -> u64 {
        *self.known.last_key_value().expect("there is one").0
    }

    pub(crate) fn get(&self, number: u64) -> &Known {
        self.known.get(&number).unwrap_or_else(|| panic!("revision {number} comes from nowhere"))
    }

    /// Whether anything is broken that still decides.
    pub(crate) fn is_broken(&self, number: u64) -> bool {
        self.get(number).broken
    }

    pub(crate) fn quarantined(&self) -> usize {
        self.known.values().filter(|known| known.quarantined).count()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.known.keys().copied()
    }

    /// The revisions that a rollback may go to.
    pub(crate) fn healthy(&self) -> Vec<u64> {
        self.known.iter().filter(|(_, known)| !known.broken).map(|(number, _)| *number).collect()
    }

    /// What decides once this one is out of service.
    pub(crate) fn last_healthy(&self, before: u64) -> Option<u64> {
        let earlier = self.known.range(..before).rev();
        earlier.filter(|(_, known)| !known.quarantined).map(|(number, _)| *number).next()
    }

    /// The upload on its way was answered.
    pub(crate) fn uploaded(&mut self, answer: &Value) -> u64 {
        let known = self.in_flight.take().expect("it was sent");
        let number = self.last() + 1;
        assert_eq!((&answer["revision"], &answer["active"]), (&json!(number), &json!(true)), "{answer}");
        assert_eq!(answer["digest"], known.digest, "{answer}");
        self.known.insert(number, known);
        self.active = BTreeSet::from([number]);
        self.uploads += 1;
        number
    }

    /// A broken revision was seen to be out of service.
    pub(crate) fn was_quarantined(&mut self, number: u64, active: &Value) {
        self.known.get_mut(&number).expect("it is known").quarantined = true;
        let takes_over = self.last_healthy(number).expect("the standard policy is healthy");
        assert_eq!(active["revision"], takes_over, "after {number} was taken out of service: {active}");
        self.active = BTreeSet::from([takes_over]);
    }

    /// After a restart: nothing that was answered is lost or different, and the rest is what was on its way.
    pub(crate) fn holds(&mut self, listed: &[Value]) {
        let numbers: Vec<_> = listed.iter().map(|revision| revision["revision"].clone()).collect();
        let expected: Vec<_> = (1..=listed.len() as u64).map(Value::from).collect();
        assert_eq!(numbers, expected, "the numbers have no holes");
        let (answered, there) = (self.last(), listed.len() as u64);
        assert!(there >= answered, "{answered} revisions were answered, {there} are there");
        if there > answered {
            let upload = self.in_flight.take().expect("a revision came from nowhere");
            self.known.insert(answered + 1, upload);
            // It and its being active are one commit.
            self.active = BTreeSet::from([answered + 1]);
        }
        assert_eq!(there, self.last(), "one upload makes one revision");
        self.in_flight = None;
        for (revision, (number, known)) in listed.iter().zip(&mut self.known) {
            assert_eq!((&revision["digest"], &revision["params"]), (&json!(known.digest), &known.params));
            let quarantined = revision["quarantined"].is_object();
            assert!(quarantined || !known.quarantined, "revision {number} is in service again: {revision}");
            assert!(!quarantined || known.broken, "revision {number} did nothing wrong: {revision}");
            known.quarantined = quarantined;
        }
        let active: Vec<_> = listed.iter().filter(|revision| revision["active"] == true).collect();
        let [active] = active[..] else { panic!("one is active: {active:?}") };
        let active = active["revision"].as_u64().expect("a number");
        let decides =
            |number: u64| if self.get(number).quarantined { self.last_healthy(number) } else { Some(number) };
        let allowed: Vec<_> = self.active.iter().filter_map(|number| decides(*number)).collect();
        assert!(allowed.contains(&active), "{active} decides, and not one of {allowed:?}");
        self.active = BTreeSet::from([active]);
    }

    /// A nack was answered.
    pub(crate) fn decided(&mut self, delivery: &Value, decision: &Value) {
        let attempt = attempt_of(&delivery["message"]["id"], &delivery["attempt"]);
        let before = self.decided.insert(attempt, decision.clone());
        assert!(before.is_none(), "an attempt was decided twice: {delivery}");
    }

    /// A page of records, newest first; tells whether there may be more that were not read yet.
    pub(crate) fn recorded(&mut self, next: &mut Option<u64>, page: &[Value]) -> bool {
        for record in page {
            let number = record["number"].as_u64().expect("a number");
            assert!(next.is_none_or(|next| next == number), "{next:?} should follow: {record}");
            *next = number.checked_sub(1);
            if number <= self.newest {
                return false;
            }
            let attempt = attempt_of(&record["message_id"], &record["attempt"]);
            if let Some(decision) = self.decided.remove(&attempt) {
                assert_eq!(
                    (&record["cause"], &record["revision"]),
                    (&json!("nacked"), &decision["revision"])
                );
                assert_eq!(record["fault"], decision["fault"], "{record}");
                assert!(
                    record["fault"].is_object() || record["answer"]["delay"] == decision["delay"],
                    "{record}"
                );
            }
            assert!(self.recorded.insert(attempt), "an attempt was recorded twice: {record}");
        }
        true
    }

    /// All records were read, up to this one.
    pub(crate) fn all_recorded(&mut self, newest: u64) {
        assert!(newest >= self.newest, "record {} is gone: {newest} is the newest", self.newest);
        assert_eq!(self.recorded.len() as u64, newest, "the first record has number 1");
        assert!(self.decided.is_empty(), "decisions have no record: {:?}", self.decided);
        self.newest = newest;
    }
}

fn attempt_of(id: &Value, attempt: &Value) -> (String, u64) {
    (id.as_str().expect("an id").to_owned(), attempt.as_u64().expect("a number"))
}
