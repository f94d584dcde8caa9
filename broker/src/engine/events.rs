//! What operators want to hear of as it happens: a policy that takes over, one that is taken out of service, a circuit
//! that opens or closes.

use super::Engine;
use super::state::Subscription;
use crate::domain::circuit::Circuit;
use crate::domain::digest::Digest;
use crate::domain::id::RealmId;
use crate::domain::name::Name;
use crate::domain::time::Timestamp;

/// Something that happened and was applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// On which subscription.
    pub subscription: Name,
    /// What.
    pub kind: EventKind,
    /// In which realm.
    pub realm: RealmId,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// Another revision decides from now on.
    PolicyActivated {
        /// Its number.
        revision: u32,
        /// Its module.
        digest: Digest,
        /// What it is called.
        name: String,
    },
    /// A revision broke too often and was taken out of service.
    PolicyQuarantined {
        /// Its number.
        revision: u32,
        /// The last fault.
        fault: String,
    },
    /// A policy paused the subscription, deliveries are tried, or they flow again.
    Circuit(Circuit),
}

impl EventKind {
    /// Its name on every surface.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::PolicyActivated { .. } => "policy_activated",
            Self::PolicyQuarantined { .. } => "policy_quarantined",
            Self::Circuit(Circuit::Open { .. }) => "subscription_paused",
            Self::Circuit(Circuit::HalfOpen { .. }) => "subscription_probing",
            Self::Circuit(Circuit::Closed) => "subscription_resumed",
        }
    }
}

impl Subscription {
    /// What changed of it since it was last written, where that is worth an event.
    pub(super) fn events(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        let event = |kind| Event { at: now, subscription: self.row.name.clone(), kind, realm: self.realm };
        if self.announced != self.row.active_revision {
            let (revision, digest) = (self.row.active_revision, self.revision.digest);
            let name = self.revision.name.clone();
            events.push(event(EventKind::PolicyActivated { revision, digest, name }));
        }
        if self.cursor.circuit != self.saved.circuit {
            events.push(event(EventKind::Circuit(self.cursor.circuit.clone())));
        }
        self.announced = self.row.active_revision;
    }
}

impl Engine {
    /// What happened since this was last asked, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}
