//! The orders, and the payment provider that is asked to charge them.
//!
//! The provider is scripted, as the sandboxes of real ones are: the payment token says how a call goes. What is wrong
//! with an order itself, it finds by looking. Nothing here knows the policy.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The orders of the demo, one a line.
const ORDERS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/orders/orders.jsonl"));

/// What the provider charges in.
const CURRENCIES: [&str; 8] = ["CHF", "CZK", "DKK", "EUR", "JPY", "PLN", "SEK", "USD"];

/// An order, as far as the provider looks at it.
#[derive(Deserialize, Debug)]
pub(super) struct Order {
    pub(super) id: String,
    pub(super) customer: Customer,
    ship_to: Address,
    items: Vec<Item>,
    currency: String,
    /// In the smallest unit of the currency, as prices are.
    total: u64,
    payment: String,
}

#[derive(Deserialize, Debug)]
pub(super) struct Customer {
    pub(super) id: String,
    pub(super) name: String,
}

#[derive(Deserialize, Debug)]
struct Address {
    postcode: String,
    country: String,
}

#[derive(Deserialize, Debug)]
struct Item {
    name: String,
    quantity: u64,
    price: u64,
}

/// How a call of the provider ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// The money is there.
    Charged,
    /// No answer in time.
    Timeout,
    /// Too many calls; the answer says when the next one is welcome.
    RateLimited,
    /// The order cannot be charged, for this reason.
    Invalid(String),
    /// The answer kills whoever reads it.
    Crash,
}

/// How the calls for one order end: these, and then always the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Script {
    first: Vec<Reply>,
    then: Reply,
}

impl Script {
    /// The reply to this attempt, counted from 1.
    pub(super) fn reply(&self, attempt: u32) -> &Reply {
        self.first.get(attempt as usize - 1).unwrap_or(&self.then)
    }
}

impl Order {
    /// The script of its payment.
    pub(super) fn script(&self) -> Script {
        use Reply::{Charged, Crash, RateLimited, Timeout};
        let (first, then) = match self.payment.as_str() {
            "tok_timeout_once" => (vec![Timeout], Charged),
            "tok_timeout_twice" => (vec![Timeout; 2], Charged),
            "tok_timeout_thrice" => (vec![Timeout; 3], Charged),
            "tok_timeout_always" => (Vec::new(), Timeout),
            "tok_busy_once" => (vec![RateLimited], Charged),
            "tok_busy_twice" => (vec![RateLimited; 2], Charged),
            "tok_crash_once" => (vec![Crash], Charged),
            "tok_crash_always" => (Vec::new(), Crash),
            "tok_mixed" => (vec![Timeout, RateLimited, Crash], Charged),
            _ => (Vec::new(), Charged),
        };
        match (then, self.mistake()) {
            (Charged, Some(mistake)) => Script { first, then: Reply::Invalid(mistake) },
            (then, _) => Script { first, then },
        }
    }

    /// Where it goes to.
    pub(super) fn country(&self) -> &str {
        &self.ship_to.country
    }

    fn mistake(&self) -> Option<String> {
        let sum: u64 = self.items.iter().map(|item| item.quantity * item.price).sum();
        if self.items.is_empty() {
            return Some("there is nothing in it".to_owned());
        }
        if let Some(item) = self.items.iter().find(|item| item.quantity == 0) {
            return Some(format!("{}: zero of it", item.name));
        }
        if sum != self.total {
            return Some(format!("its items cost {sum}, its total says {}", self.total));
        }
        if !CURRENCIES.contains(&self.currency.as_str()) {
            return Some(format!("{} is no currency to pay in", self.currency));
        }
        self.ship_to.postcode.is_empty().then(|| "the address has no postcode".to_owned())
    }
}

/// Every order, with the text that it is written in.
///
/// # Errors
/// If a line is not an order.
pub(super) fn all() -> Result<Vec<(Order, &'static RawValue)>, serde_json::Error> {
    let order = |line| Ok((serde_json::from_str(line)?, serde_json::from_str(line)?));
    ORDERS.lines().map(order).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file has an order for every way a payment can go, and each has an id of its own.
    #[test]
    fn the_orders_show_everything() {
        let orders = all().expect("orders");
        let ids: std::collections::HashSet<_> = orders.iter().map(|(order, _)| &order.id).collect();
        assert_eq!((orders.len(), ids.len()), (60, 60));
        let scripts: Vec<Script> = orders.iter().map(|(order, _)| order.script()).collect();
        for reply in [Reply::Charged, Reply::Timeout, Reply::Crash] {
            assert!(scripts.iter().any(|script| script.then == reply), "{reply:?}");
        }
        let first = |reply| scripts.iter().any(|script| *script.reply(1) == reply);
        assert!(first(Reply::Timeout) && first(Reply::RateLimited) && first(Reply::Crash));
        let invalid = scripts.iter().filter(|script| matches!(script.then, Reply::Invalid(_)));
        assert_eq!(invalid.count(), 6);
    }

    /// Whatever is wrong with an order is found.
    #[test]
    fn mistakes_are_found() {
        let orders = all().expect("orders");
        let mistakes: Vec<String> = orders.iter().filter_map(|(order, _)| order.mistake()).collect();
        for part in ["nothing in it", "zero of it", "total says", "no currency", "no postcode"] {
            assert!(mistakes.iter().any(|mistake| mistake.contains(part)), "{part}: {mistakes:?}");
        }
    }
}
