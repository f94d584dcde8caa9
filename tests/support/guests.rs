//! Policies written by hand in WebAssembly text, for what no compiler would write: traps, loops, nonsense.
//!
//! Each behaves in the trial that every upload goes through, which runs for a subscription called `rehearsal`,
//! and shows its other side wherever the name has another length.
//!
//! ```text
//! 1024  the decision: action tag; 1032 its payload; 1064 pause tag; 1096 memo tag; 1108 note tag
//! 1200  the description: name, version, summary, queues, params, each a pointer and a length
//! 1300  the verdict of check: tag; 1304 pointer and length of the text
//! 2048  texts of the description; 2304 those of the decision
//! 4096  the heap, never freed
//! ```

/// A guest; as it is, it answers a retry after 5 seconds.
pub(crate) struct Guest {
    /// Imports, which come first.
    pub(crate) imports: &'static str,
    /// Globals, tables and functions of its own.
    pub(crate) fields: &'static str,
    /// What `decide` does with the context at `$context`; it may use the locals `$i` and `$j`.
    pub(crate) decide: String,
    /// What `check` does with the params at `$params`, `$length` bytes.
    pub(crate) check: &'static str,
    /// Whether `describe` is exported.
    pub(crate) describes: bool,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            imports: "",
            fields: "",
            decide: DECISION.to_owned(),
            check: "(i32.const 1300)",
            describes: true,
        }
    }
}

/// Where the decision is.
pub(crate) const DECISION: &str = "(i32.const 1024)";

/// A guest that behaves in its trial and does this afterwards.
pub(crate) fn after_trial(decide: &str) -> Vec<u8> {
    let trial = "(if (i32.eq (i32.load offset=4 (local.get $context)) (i32.const 9)) (then (return (i32.const 1024))))";
    Guest { decide: format!("{trial} {decide}"), ..Guest::default() }.module()
}

/// A guest that does this from the beginning.
pub(crate) fn deciding(decide: &str) -> Guest {
    Guest { decide: decide.to_owned(), ..Guest::default() }
}

/// Puts a text of at most 128 bytes into memory and leaves its place and length in the two words at `at`.
fn text_at(at: u32, text: &str) -> String {
    assert!(text.len() <= 128, "a text has its own 128 bytes");
    let place = 2304 + (at - 1032) * 16;
    let stored = (place..).zip(text.bytes());
    let bytes: String =
        stored.map(|(at, byte)| format!("(i32.store8 (i32.const {at}) (i32.const {byte}))")).collect();
    let (length, after) = (text.len(), at + 4);
    format!(
        "{bytes} (i32.store (i32.const {at}) (i32.const {place})) (i32.store (i32.const {after}) (i32.const {length}))"
    )
}

/// Answers a retry after so many milliseconds.
pub(crate) fn retry(millis: u64) -> String {
    // The literal is signed: the bits are what counts.
    format!("(i64.store (i32.const 1032) (i64.const {})) {DECISION}", millis.cast_signed())
}

/// Answers a dead letter in this queue, `None` the default one.
pub(crate) fn dead_letter(queue: Option<&str>, reason: &str) -> String {
    let queue = match queue {
        None => "(i32.store (i32.const 1032) (i32.const 0))".to_owned(),
        Some(queue) => format!("(i32.store (i32.const 1032) (i32.const 1)) {}", text_at(1036, queue)),
    };
    format!("(i32.store8 (i32.const 1024) (i32.const 1)) {queue} {} {DECISION}", text_at(1044, reason))
}

/// Answers a forward to this topic.
pub(crate) fn forward(topic: &str) -> String {
    format!("(i32.store8 (i32.const 1024) (i32.const 2)) {} {DECISION}", text_at(1032, topic))
}

/// Answers a drop.
pub(crate) fn drop(reason: &str) -> String {
    format!("(i32.store8 (i32.const 1024) (i32.const 3)) {} {DECISION}", text_at(1032, reason))
}

/// Adds a pause to the answer that follows.
pub(crate) fn pause(millis: u64, probes: u32, reason: &str) -> String {
    format!(
        "(i32.store8 (i32.const 1064) (i32.const 1)) (i64.store (i32.const 1072) (i64.const {millis}))
         (i32.store (i32.const 1080) (i32.const {probes})) {}",
        text_at(1084, reason)
    )
}

/// Adds a memo to the answer that follows.
pub(crate) fn memo(text: &str) -> String {
    format!("(i32.store8 (i32.const 1096) (i32.const 1)) {}", text_at(1100, text))
}

/// Adds a note to the answer that follows.
pub(crate) fn note(text: &str) -> String {
    format!("(i32.store8 (i32.const 1108) (i32.const 1)) {}", text_at(1112, text))
}

impl Guest {
    fn text(&self) -> String {
        let Self { imports, fields, decide, check, describes, .. } = self;
        let describe = if *describes { r#"(export "reprise:policy/policy@0.1.0#describe")"# } else { "" };
        format!(
            r#"(module
              {imports}
              (memory (export "memory") 1)
              (global $heap (mut i32) (i32.const 4096))
              {fields}
              (func (export "cabi_realloc") (param i32 i32) (param $align i32) (param $size i32) (result i32)
                (local $start i32)
                (local.set $start (i32.and
                  (i32.add (global.get $heap) (i32.sub (local.get $align) (i32.const 1)))
                  (i32.sub (i32.const 0) (local.get $align))))
                (global.set $heap (i32.add (local.get $start) (local.get $size)))
                (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
                  (then (drop (memory.grow
                    (i32.add (i32.const 1) (i32.div_u (local.get $size) (i32.const 65536)))))))
                (local.get $start))
              (func (export "reprise:policy/policy@0.1.0#decide") (param $context i32) (result i32)
                (local $i i32) (local $j i64) {decide})
              (func (export "reprise:policy/policy@0.1.0#check") (param $params i32) (param $length i32) (result i32)
                {check})
              (func $describe {describe} (result i32) (i32.const 1200))
              (data (i32.const 1032) "\88\13")
              (data (i32.const 1200) "\00\08\00\00\05\00\00\00" "\05\08\00\00\03\00\00\00" "\08\08\00\00\07\00\00\00"
                "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00")
              (data (i32.const 2048) "guest" "1.0" "by hand"))"#
        )
    }

    /// The core module with the contract's section, as a compiler leaves it.
    pub(crate) fn module(&self) -> Vec<u8> {
        let mut module = wat::parse_str(self.text()).expect("the guest is valid text");
        let mut resolve = wit_parser::Resolve::default();
        let contract = super::policies::workspace().join("policy-sdk/wit");
        let (package, _) = resolve.push_path(contract).expect("the contract parses");
        let world = resolve.select_world(&[package], None).expect("the contract has one world");
        let encoding = wit_component::StringEncoding::UTF8;
        wit_component::embed_component_metadata(&mut module, &resolve, world, encoding)
            .expect("the section encodes");
        module
    }

    /// The component around it.
    pub(crate) fn component(&self) -> Vec<u8> {
        let mut encoder = wit_component::ComponentEncoder::default();
        let encoder = encoder.module(&self.module()).expect("the module fits");
        encoder.encode().expect("the component encodes")
    }
}
