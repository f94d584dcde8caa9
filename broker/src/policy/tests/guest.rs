//! Policies written by hand in WebAssembly text: small, hostile where needed, and proof that the contract
//! asks for no particular language. The tests at the root write theirs with it, too.
//!
//! ```text
//! 1024  the decision: action tag; 1032 its payload; 1064 pause tag; 1096 memo tag; 1108 note tag
//! 1200  the description: name, version, summary, queues, params, each a pointer and a length
//! 1300  the verdict of check: tag; 1304 pointer and length of the text
//! 2048  texts of the description; 2304 those of the decision, where it has any
//! 4096  the heap, never freed
//! ```

/// A guest whose functions can be replaced. As it is, it answers a retry after 5 seconds.
pub(crate) struct Guest {
    /// Imports, which come first.
    pub(crate) imports: String,
    /// Initial pages of memory.
    pub(crate) pages: u32,
    /// Globals, tables and functions of its own.
    pub(crate) fields: String,
    /// Body of `decide`, with the context at `$context`.
    pub(crate) decide: String,
    /// Body of `check`, with the params at `$params`, `$length` bytes.
    pub(crate) check: String,
    /// Body of `describe`.
    pub(crate) describe: String,
    /// Exports `describe`.
    pub(crate) describes: bool,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            imports: String::new(),
            pages: 1,
            fields: String::new(),
            decide: "(i32.const 1024)".to_owned(),
            check: "(i32.const 1300)".to_owned(),
            describe: "(i32.const 1200)".to_owned(),
            describes: true,
        }
    }
}

/// A guest with this body of `decide`.
pub(crate) fn deciding(body: &str) -> Guest {
    Guest { decide: body.to_owned(), ..Guest::default() }
}

impl Guest {
    /// The core module in text.
    pub(crate) fn text(&self) -> String {
        let Self { imports, pages, fields, decide, check, describe, describes } = self;
        let describe_export =
            if *describes { r#"(export "reprise:policy/policy@0.1.0#describe")"# } else { "" };
        format!(
            r#"(module
              {imports}
              (memory (export "memory") {pages})
              (global $heap (mut i32) (i32.const 4096))
              {fields}
              (func (export "cabi_realloc") (param i32 i32) (param $align i32) (param $size i32) (result i32)
                (local $start i32)
                (local.set $start (i32.and
                  (i32.add (global.get $heap) (i32.sub (local.get $align) (i32.const 1)))
                  (i32.sub (i32.const 0) (local.get $align))))
                (global.set $heap (i32.add (local.get $start) (local.get $size)))
                (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
                  (then (drop (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $size) (i32.const 65536)))))))
                (local.get $start))
              (func (export "reprise:policy/policy@0.1.0#decide") (param $context i32) (result i32) {decide})
              (func (export "reprise:policy/policy@0.1.0#check") (param $params i32) (param $length i32) (result i32)
                {check})
              (func $describe {describe_export} (result i32) {describe})
              (data (i32.const 1032) "\88\13")
              (data (i32.const 1200) "\00\08\00\00\05\00\00\00" "\05\08\00\00\03\00\00\00" "\08\08\00\00\0d\00\00\00"
                "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00")
              (data (i32.const 2048) "guest" "1.0" "by hand, in x"))"#
        )
    }

    /// The core module with the contract's section, as a compiler leaves it.
    pub(crate) fn module(&self) -> Vec<u8> {
        self.module_for(concat!(env!("CARGO_MANIFEST_DIR"), "/../policy-sdk/wit"))
    }

    /// The same with another contract.
    pub(crate) fn module_for(&self, wit: &str) -> Vec<u8> {
        let mut module = wat::parse_str(self.text()).expect("the guest is valid text");
        let mut resolve = wit_parser::Resolve::default();
        let package = if wit.starts_with("package") {
            resolve.push_str("contract.wit", wit)
        } else {
            resolve.push_path(wit).map(|(package, _)| package)
        };
        let package = package.expect("the contract parses");
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
