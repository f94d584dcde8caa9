//! System tests: the real binary, real HTTP, the real store, real wasm. Each module is about one promise.
//!
//! - [`life`]: a message from its publish to its end, on one subscription and on several.
//! - [`routes`]: every route answers one good request and refuses one bad one.
//! - [`rule_1_attempts`]: attempts count leases, survive a kill, and are never used again.
//! - [`rule_2_causes`]: whatever ends an attempt, there is one path to a decision.
//! - [`rule_3_leases`]: one current lease, and what a receipt is worth.
//! - [`rule_4_decisions`]: what a policy may decide, and how the broker checks it.
//! - [`rule_5_commits`]: a crash leaves everything of a transition, or nothing.
//! - [`rule_6_faults`]: a broken policy loses nothing, and is taken out of service.
//! - [`rule_7_purity`]: a policy sees what it is shown and nothing else.
//! - [`publishing`]: raw bodies, batches, MessagePack; what is refused leaves nothing behind.
//! - [`publishing_cloudevents`]: events in every mode, and trace context.
//! - [`publishing_dedup`]: what is sent again is stored once.
//! - [`publishing_quotas`]: what is full refuses publishes, drops nothing and counts exactly.
//! - [`publishing_schema`]: payloads follow the JSON Schema of their topic, or are refused.
//! - [`payloads`]: bytes and attributes come back as they were given.
//! - [`modes`]: what is settled on delivery, and what is for whoever is connected.
//! - [`ordering`]: one delivery of a key at a time, in the order they were published.
//! - [`filters`]: a subscription gets what its filter lets through.
//! - [`flow`]: pause, resume, seek, purge, rates, and consumers that hold all they may.
//! - [`browsing`]: reading without taking.
//! - [`retention`]: what is too old goes, settled or not.
//! - [`timing`]: delays, times to live, long polls.
//! - [`settings`]: create, replace, change, list and delete topics and subscriptions.
//! - [`policy_uploads`]: modules, parameters and revisions.
//! - [`revisions`]: what each one did, and the way back.
//! - [`records`]: what a policy was shown is kept, within bounds, and becomes a fixture.
//! - [`lab`]: simulations and backtests.
//! - [`determinism`]: a hundred thousand decisions, asked again, are the same.
//! - [`shadow`]: a second policy is asked and changes nothing.
//! - [`events`]: whoever listens hears of policies and circuits.
//! - [`hostile_modules`]: what is not a policy is refused, and the broker goes on.
//! - [`compile_bombs`]: what is hard to compile is stopped, and nobody else notices.
//! - [`starts`]: many policies do not delay a start.
//! - [`dead_letters`]: list, filter, inspect, replay, discard.
//! - [`bad_input`]: a table of bad requests, each with its code, none with an effect.
//! - [`bad_receipts`]: stale, foreign and random receipts.
//! - [`access`]: the operator's token, realms, addresses, one process per folder.
//! - [`audit`]: who did what is told in the commit of the deed, and cannot be changed unseen.
//! - [`rates`]: who asks too often or guesses waits, and nobody else does.
//! - [`tenants`]: the same names in two realms never meet, and no route lets anybody look across.
//! - [`tokens`]: scopes, patterns, secrets that are shown once, rotation, expiry, revocation.
//! - [`shutdown`]: an orderly end answers whoever waits.
//! - [`streaming`]: deliveries pushed within credit and settled on the same connection.
//! - [`stream_ends`]: whatever happens to the connection, what it holds is decided at once.
//! - [`hostile_streams`]: bad frames are answered, and who means harm loses its own connection.
//! - [`publish_streams`]: batches confirmed in their order.
//! - [`workbench`]: dead letters by the many: found, counted.
//! - [`workspace_policies`]: policies of the workspace whose effect shows only in a broker.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod audit;
mod bad_input;
mod bad_receipts;
mod browsing;
mod compile_bombs;
mod dead_letters;
mod determinism;
mod events;
mod filters;
mod flow;
mod hostile_modules;
mod hostile_streams;
mod lab;
mod life;
mod modes;
mod ordering;
mod patterns;
mod payloads;
mod policy_uploads;
mod publish_streams;
mod publishing;
mod publishing_cloudevents;
mod publishing_dedup;
mod publishing_quotas;
mod publishing_schema;
mod rates;
mod records;
mod retention;
mod revisions;
mod routes;
mod rule_1_attempts;
mod rule_2_causes;
mod rule_3_leases;
mod rule_4_decisions;
mod rule_5_commits;
mod rule_6_faults;
mod rule_7_purity;
mod settings;
mod shadow;
mod shutdown;
mod starts;
mod stream_ends;
mod streaming;
mod tenants;
mod timing;
mod tokens;
mod workbench;
mod workspace_policies;
