//! Every bound of the broker, once: its name, its default and its reason. The error that each one
//! gives is named in `http::error`.

use std::time::Duration;

const KIB: usize = 1024;
const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// Names travel in URLs, keys and metrics.
pub const MAX_NAME_BYTES: usize = 128;
/// What one topic accepts unless it says otherwise.
pub const DEFAULT_MESSAGE_BYTES: usize = 256 * KIB;
/// The most a topic can be set to: a message and its rows fit one commit.
pub const MAX_MESSAGE_BYTES: usize = 512 * KIB;
/// Payloads and attributes of one publish together: they are one commit of at most 1 MiB.
pub const MAX_BATCH_BYTES: usize = 768 * KIB;
/// Messages of one publish, receipts of one settle, deliveries of one pull.
pub const MAX_BATCH_ITEMS: usize = 1_000;
/// The body of any request but a policy upload: a batch in base64 with its JSON around it.
pub const MAX_BODY_BYTES: usize = 2 * 1024 * KIB;
/// Attributes of one message.
pub const MAX_ATTRIBUTES: usize = 64;
/// The name of an attribute.
pub const MAX_ATTRIBUTE_NAME_BYTES: usize = 128;
/// The value of an attribute.
pub const MAX_ATTRIBUTE_VALUE_BYTES: usize = 8 * KIB;
/// Names and values of all attributes of one message.
pub const MAX_ATTRIBUTES_BYTES: usize = 32 * KIB;
/// A message key.
pub const MAX_KEY_BYTES: usize = 256;
/// A content type.
pub const MAX_CONTENT_TYPE_BYTES: usize = 256;
/// The class and the code of a failure: they become labels and facets.
pub const MAX_CLASS_BYTES: usize = 128;
/// The detail of a failure, the reason and the note of a decision; longer ones are cut.
pub const MAX_DETAIL_BYTES: usize = 2 * KIB;
/// What a policy keeps for the next decision on the same delivery.
pub const MAX_MEMO_BYTES: usize = 256;
/// Labels of one dead letter.
pub const MAX_LABELS: usize = 16;
/// Labels, attributes and words that dead letters are looked for by at a time.
pub const MAX_DEAD_LETTER_TERMS: usize = 16;
/// Jobs of one realm that have not ended.
pub const MAX_OPEN_JOBS: usize = 20;
/// Jobs of one realm that have ended and are still shown.
pub const MAX_JOBS: usize = 100;
/// The most dead letters that a job may be told to take in a second.
pub const MAX_JOB_RATE: u32 = 100_000;
/// Attempts of a delivery kept in full; earlier ones are only counted.
pub const MAX_HISTORY: usize = 32;
/// Past failures shown to a policy.
pub const MAX_CONTEXT_HISTORY: usize = 16;
/// Parameters of a policy, as JSON text.
pub const MAX_PARAMS_BYTES: usize = 16 * KIB;
/// An uploaded policy.
pub const MAX_MODULE_BYTES: usize = 1024 * KIB;
/// Revisions of one subscription: they are kept for ever, as decisions name them.
pub const MAX_REVISIONS: u32 = 1_000;
/// Recorded failures that a subscription keeps unless it says otherwise.
pub const DEFAULT_RECORD_FAILURES: u32 = 10_000;
/// The most that `record_failures` can be set to: they are read for each backtest.
pub const MAX_RECORD_FAILURES: u32 = 100_000;
/// How long a recorded failure is kept unless the subscription says otherwise.
pub const DEFAULT_RECORD_FOR: Duration = Duration::from_secs(7 * DAY);
/// A failure whose policy was shown a larger payload is not recorded: records are kept by count.
pub const MAX_RECORDED_PAYLOAD_BYTES: usize = 64 * KIB;
/// Topics that a subscription's policy may forward to.
pub const MAX_FORWARD_TO: usize = 16;
/// The text of a filter.
pub const MAX_FILTER_BYTES: usize = 4 * KIB;
/// How deep its parentheses and negations go: they are read and applied by recursion.
pub const MAX_FILTER_DEPTH: usize = 16;
/// The most deliveries a second that `max_rate` can be set to; more is no bound.
pub const MAX_DELIVERY_RATE: u32 = 1_000_000;
/// The name that a consumer gives itself.
pub const MAX_CONSUMER_BYTES: usize = 128;
/// The reason that an operator gives for a pause.
pub const MAX_PAUSE_REASON_BYTES: usize = 1024;
/// How long a live subscription counts as connected after its last consumer was served.
pub const LIVE_LINGER: Duration = Duration::from_secs(10);
/// Topics of one realm.
pub const MAX_TOPICS: usize = 10_000;
/// Subscriptions that name one topic.
pub const MAX_SUBSCRIPTIONS_PER_TOPIC: usize = 1_000;
/// Subscriptions of one realm that read a pattern of topics: each may come to every topic.
pub const MAX_PATTERN_SUBSCRIPTIONS: usize = 100;
/// Long polls waiting on one subscription.
pub const MAX_WAITERS: usize = 1_000;
/// Payload bytes of one pull, give or take one message.
pub const MAX_PULL_BYTES: usize = 4 * 1024 * KIB;
/// How long one pull may wait; longer ones are cut to it.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// The longest delay of anything: a retry, a publish, a time to live.
pub const MAX_DELAY: Duration = Duration::from_secs(365 * DAY);
/// `max_delay` of a subscription unless it says otherwise.
pub const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(DAY);
/// The shortest lease: below it a consumer cannot answer in time.
pub const MIN_LEASE: Duration = Duration::from_millis(100);
/// A lease unless the subscription says otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The most that a lease can be extended to in all, unless the subscription says otherwise.
pub const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(60 * MINUTE);
/// The longest `max_lease`: a hung consumer that extends for ever gives up its message by then.
pub const MAX_LEASE: Duration = Duration::from_secs(7 * DAY);
/// Leases of one subscription at a time unless it says otherwise.
pub const DEFAULT_MAX_IN_FLIGHT: u32 = 10_000;
/// The most that `max_in_flight` can be set to: leases are held in memory.
pub const MAX_IN_FLIGHT: u32 = 100_000;
/// Attempts after which a delivery is dead-lettered natively, unless the subscription says otherwise.
pub const DEFAULT_ATTEMPT_LIMIT: u32 = 1_000;
/// The most that `attempt_limit` can be set to.
pub const MAX_ATTEMPT_LIMIT: u32 = 1_000_000;
/// The first delay after a fault unless the subscription says otherwise.
pub const DEFAULT_FALLBACK_DELAY: Duration = Duration::from_secs(5);
/// The shortest delay after a fault: a broken policy must not spin.
pub const MIN_FALLBACK_DELAY: Duration = Duration::from_secs(1);
/// Consecutive faults that quarantine a revision unless the subscription says otherwise.
pub const DEFAULT_FAULT_LIMIT: u32 = 10;
/// The most that `fault_limit` can be set to.
pub const MAX_FAULT_LIMIT: u32 = 1_000_000;
/// How long a message that nobody needs any more stays readable, unless the topic says otherwise.
pub const DEFAULT_KEEP_ACKED: Duration = Duration::from_secs(10 * MINUTE);
/// Topics a message can be forwarded through before it is dead-lettered.
pub const MAX_HOPS: u8 = 16;
/// Deliveries let through at most when a paused subscription half-opens.
pub const MAX_PROBES: u32 = 1_000;
/// Items of one page of a list.
pub const MAX_PAGE: usize = 1_000;
/// Items of one page unless the request says otherwise.
pub const DEFAULT_PAGE: usize = 100;
/// Streams of one broker at a time, of consumers and publishers together: no more than can wait on one subscription.
pub const MAX_STREAMS: usize = MAX_WAITERS;
/// A frame of a stream: as much as a request.
pub const MAX_FRAME_BYTES: usize = MAX_BODY_BYTES;
/// Payload bytes of one frame of deliveries, give or take one message: what a stream holds for a slow reader.
pub const MAX_DELIVERIES_BYTES: usize = 1024 * KIB;
/// Frames of one stream that are not answered yet; behind them no more is read.
pub const MAX_UNANSWERED_FRAMES: usize = 64;
/// The id of a frame.
pub const MAX_FRAME_ID_BYTES: usize = 128;
/// Credit of one stream in messages: more leases than a subscription can have are never used.
pub const MAX_CREDIT_MESSAGES: u32 = MAX_IN_FLIGHT;
/// Credit of one stream in payload bytes.
pub const MAX_CREDIT_BYTES: u64 = 1024 * 1024 * KIB as u64;
/// How long a stream may go without a sign of its client unless the broker is told otherwise.
pub const DEFAULT_STREAM_IDLE: Duration = Duration::from_secs(60);
/// The least that this can be set to: a third of it is a ping and its answer over any network.
pub const MIN_STREAM_IDLE: Duration = Duration::from_millis(500);
/// The most: until then nobody else is delivered what a vanished client holds.
pub const MAX_STREAM_IDLE: Duration = Duration::from_secs(60 * MINUTE);
/// How long a topic remembers the ids that publishers give their messages, unless it says otherwise: longer than any
/// client tries again.
pub const DEFAULT_DEDUP_WINDOW: Duration = Duration::from_secs(2 * MINUTE);
/// The longest `dedup_window`: each id is two rows until it has passed.
pub const MAX_DEDUP_WINDOW: Duration = Duration::from_secs(7 * DAY);
/// The id that a publisher gives a message. It is kept as a hash.
pub const MAX_DEDUP_ID_BYTES: usize = 256;
/// Realms: each has its own topics, limits and listeners.
pub const MAX_REALMS: usize = 1_000;
/// Tokens of all realms: they are held in memory, where each request looks.
pub const MAX_TOKENS: usize = 10_000;
/// Patterns of names in one token, for topics and for subscriptions each: a request goes through them.
pub const MAX_PATTERNS: usize = 32;
/// The most that `per_second` and `burst` of a rate can be set to.
pub const MAX_RATE: u32 = 1_000_000;
/// Rows of the audit log, a few hundred bytes each; beyond that the oldest go. So many that nobody who is busy washes away
/// soon what others did.
pub const MAX_AUDIT_ROWS: u64 = 1_000_000;
/// The JSON Schema of a topic: it is one row with its other settings.
pub const MAX_SCHEMA_BYTES: usize = 64 * KIB;
