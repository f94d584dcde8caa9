//! What `broker policy build` makes of a module: smaller, the same policy, and a refusal where there is none.

use reprise_broker::policy::{Limits, Refusal, Sandbox, pack};

use crate::{cases, policies};

/// A custom section as compilers leave them: a name and anything.
fn section(name: &str, contents: &[u8]) -> Vec<u8> {
    let size = 1 + name.len() + contents.len();
    // Always in three bytes.
    let size = [size as u8 | 0x80, (size >> 7) as u8 | 0x80, (size >> 14) as u8];
    [&[0][..], &size, &[name.len() as u8], name.as_bytes(), contents].concat()
}

fn module_of(name: &str) -> Vec<u8> {
    if policies::EXAMPLES.contains(&name) { policies::example(name) } else { policies::module(name) }
}

/// Every policy, packed: it is admitted, describes itself and answers all its cases as before, for the same fuel; and
/// whatever sections a compiler added are gone.
#[test]
fn a_packed_policy_is_the_same_policy() {
    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    let names = policies::folders().into_iter().map(|folder| (policies::name(&folder), folder));
    let examples = policies::EXAMPLES.map(|name| (name.to_owned(), policies::example_folder(name)));
    for (name, folder) in names.chain(examples) {
        let module = module_of(&name);
        let packed = pack(&module).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let (program, rehearsal) =
            sandbox.admit(&packed, "{}").unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let (plain, plain_rehearsal) = sandbox.admit(&module, "{}").expect("admitted");
        assert_eq!((program.description(), &rehearsal), (plain.description(), &plain_rehearsal), "{name}");
        for (path, case) in cases(&folder) {
            assert_eq!(program.decide(case.context()), plain.decide(case.context()), "{}", path.display());
        }
        assert_eq!(pack(&packed).expect("a component is left as it is"), packed, "{name}");

        let waste = [section("name", &[0xFF; 9_000]), section(".debug_info", &[1; 50_000])].concat();
        let (head, rest) = module.split_at(8);
        for wasteful in [[module.clone(), waste.clone()].concat(), [head, &waste, rest].concat()] {
            assert!(pack(&wasteful).expect("it is still a policy") == packed, "{name}: waste is left in it");
        }
    }
}

/// A component is not larger for having been packed, and a policy in Rust is far below its budget.
#[test]
fn a_packed_policy_is_small() {
    for folder in policies::folders() {
        let name = policies::name(&folder);
        let module = policies::module(&name);
        let encoded =
            wit_component::ComponentEncoder::default().module(&module).and_then(|encoder| encoder.encode());
        let (encoded, packed) = (encoded.expect("it is a policy"), pack(&module).expect("it is a policy"));
        assert!(packed.len() <= encoded.len(), "{name}: {} of {}", packed.len(), encoded.len());
        assert!(packed.len() < 200 * 1024, "{name}: {} bytes", packed.len());
    }
}

/// Bytes that are no policy, and policies that are damaged: each is refused, when it is packed or when it is admitted.
#[test]
fn broken_bytes_are_refused() {
    for bytes in [b"".as_slice(), b"(module)", b"\x7fELF\x02\x01\x01"] {
        assert_eq!(pack(bytes), Err(Refusal::NotWasm));
    }
    assert_eq!(pack(b"\0asm\x01\0\0\0"), Err(Refusal::NoContract));
    assert!(matches!(pack(b"\0asm\x01\0\0\0\x01\xff"), Err(Refusal::Invalid(_))));
    assert!(matches!(pack(b"\0asm\x0d\0\x01\0\x01\xff"), Err(Refusal::Invalid(_))));
    let imports = wat::parse_str(r#"(module (import "env" "now" (func)))"#).expect("it is text");
    assert_eq!(pack(&imports), Err(Refusal::Imports(vec!["env.now".to_owned()])));

    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    let module = policies::example("policy-in-wat");
    for place in (8..module.len()).step_by(11) {
        let cut = pack(&module[..place]).and_then(|packed| sandbox.admit(&packed, "{}").map(drop));
        assert!(cut.is_err(), "cut at {place}");
        let mut damaged = module.clone();
        damaged[place] ^= 0xFF;
        // Some damage is harmless, a byte of a text for one; some goes with the section that it is in.
        let packed = pack(&damaged).and_then(|packed| sandbox.admit(&packed, "{}").map(drop));
        assert!(packed.is_ok() || sandbox.admit(&damaged, "{}").is_err(), "damaged at {place}: {packed:?}");
    }
}
