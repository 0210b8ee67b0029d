//! The machine code of our own cipher path (docs/decisions/0018), as the compiler has made it: no
//! branch and no address may depend on a key, a tweak or a plain byte.
//!
//! Such bytes are in vector registers, and in the memory that these are loaded from and stored to.
//! So nothing may carry them from there to a general register or to the flags. What decides are
//! lengths, places and numbers of units, which never are in a vector register but to go in.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};
use tidelock_servers::Bounded as _;
use tidelock_testkit::twins::Product;

/// The functions that see keys, tweaks and blocks. An optimised build has those that seal and open
/// in `units`, and those that make round keys in `expand`. `set` asks whether the halves of a key
/// are equal, which ends in a refusal.
const FUNCTIONS: [&str; 6] = ["units", "unit", "first_tweaks", "passes", "expand", "round_keys"];

#[test]
#[ignore = "needs an optimised library: make build"]
fn no_branch_and_no_address_depends_on_a_secret() {
    let library = optimised();
    let code = functions(&library);
    let mut makers = 0;
    for (name, lines) in &code {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let count = |mnemonic| lines.iter().filter(|line| line.starts_with(mnemonic)).count();
        let rounds = count("vaesenc") + count("vaesdec");
        let makes_keys = count("vaeskeygenassist") == 26;
        makers += usize::from(makes_keys);
        assert!(rounds >= 200 || makes_keys, "{name} is the cipher");
        assert_eq!(ways_out(&lines), [""; 0], "{name}");
        let jumps = lines.iter().filter(|line| is_conditional_jump(line)).count();
        println!("{name}: {} instructions, {jumps} conditional jumps", lines.len());
    }
    assert!(code.len() >= 3 && makers == 1, "{}: two ways, and round keys", library.display());
}

#[test]
fn a_way_out_of_the_vector_registers_is_found() {
    let clean = [
        "vmovq  xmm0,rsi",
        "vmovdqa YMMWORD PTR [rsp+0x140],ymm0",
        "vmovdqu ymm3,YMMWORD PTR [rsp+0x200]",
        "mov    QWORD PTR [rsp+0x18],r8",
        "mov    r8,QWORD PTR [rsp+0x18]",
        "mov    BYTE PTR [rsp+rax*1+0x168],0x0",
        "mov    r14,QWORD PTR [rip+0x97611]        # 134b30 <memcpy@GLIBC_2.14>",
        "cmp    rax,0x100",
        "jne    9caf0 <units+0xf90>",
        "lea    rsp,[rbp-0x28]",
        "vpclmullqlqdq ymm7,ymm7,YMMWORD PTR [rsi]",
        "data16 cs nop WORD PTR [rax+rax*1+0x0]",
    ];
    assert_eq!(ways_out(&clean), [""; 0]);
    for bad in [
        "vmovq  rax,xmm0",
        "vmovd  ecx,xmm3",
        "vpextrq rax,xmm0,0x1",
        "vpmovmskb eax,ymm1",
        "vptest ymm0,ymm0",
        "vucomisd xmm0,xmm1",
        "kmovd  eax,k1",
        "vpgatherdd ymm0,DWORD PTR [rdi+ymm1*4],ymm2",
        "mov    rax,QWORD PTR [rdi+0x20]",
        "cmp    QWORD PTR [rdi],rax",
        "xor    rax,QWORD PTR [r13+0x3c0]",
        "movzx  eax,BYTE PTR [rsp+0x150]",
        "mov    rax,QWORD PTR [rsp+0x15f]",
        "mov    rax,QWORD PTR [rsp+0x208]",
    ] {
        let mut code = clean.to_vec();
        code.push(bad);
        assert_eq!(ways_out(&code), [bad]);
    }
}

/// The library of the release profile, beside the one that tests use by default.
fn optimised() -> PathBuf {
    let library = Product::find().unwrap_or_else(|error| panic!("{error}")).library();
    let target = library.parent().and_then(|profile| profile.parent()).unwrap();
    let optimised = target.join("release").join(library.file_name().unwrap());
    assert!(optimised.is_file(), "{} is not there\nhint: make build", optimised.display());
    optimised
}

/// The instructions of each function of the cipher path, as objdump writes them.
fn functions(library: &PathBuf) -> Vec<(String, Vec<String>)> {
    let bytes = fs::read(library).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let is_wanted = |name: &str| {
        let Some((_, rest)) = name.split_once("12tidelock_ffi4vaes") else { return false };
        let rest = rest.strip_prefix("4Keys").unwrap_or(rest);
        FUNCTIONS.iter().any(|it| rest.starts_with(&format!("{}{it}", it.len())))
    };
    let symbols = file.symbols().filter(|symbol| symbol.size() > 0);
    symbols
        .filter(|symbol| symbol.name().is_ok_and(is_wanted))
        .map(|symbol| {
            let (from, len) = (symbol.address(), symbol.size());
            let mut objdump = Command::new("objdump");
            objdump.args(["-d", "-M", "intel", "--no-show-raw-insn"]);
            objdump.arg(format!("--start-address={from}"));
            objdump.arg(format!("--stop-address={}", from + len)).arg(library);
            let done = objdump.finish().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            let lines = text.lines().filter_map(|line| line.split_once(":\t"));
            let code = lines.map(|(_, instruction)| instruction.trim().to_owned()).collect();
            (symbol.name().unwrap().to_owned(), code)
        })
        .collect()
}

/// Instructions by which bytes of a vector register, or of memory that may have the same, could
/// reach a general register, the flags or an address.
fn ways_out<'c>(code: &[&'c str]) -> Vec<&'c str> {
    // Where vectors are loaded from or stored to on the stack, nothing else may be loaded from.
    let vectors: Vec<Range<i64>> = code
        .iter()
        .filter(|line| line.starts_with('v'))
        .flat_map(|line| operands(line))
        .filter_map(stack)
        .collect();
    code.iter().copied().filter(|line| is_way_out(line, &vectors)).collect()
}

fn is_way_out(line: &str, vectors: &[Range<i64>]) -> bool {
    let (name, operands) = (mnemonic(line), operands(line));
    let is_vector = |operand: &&str| ["xmm", "ymm", "zmm"].iter().any(|r| operand.starts_with(r));
    if name.contains("gather") || name.contains("test") && name != "test" || name.starts_with('k') {
        return true;
    }
    if name.contains("comis") || operands.iter().any(is_vector) {
        let into = operands.first().copied().unwrap_or_default();
        return name.contains("comis") || !is_vector(&into) && !into.contains('[');
    }
    if name.starts_with('v') && name != "vzeroall" && name != "vzeroupper" {
        return true;
    }
    if matches!(name, "lea" | "nop" | "data16" | "cs") {
        return false;
    }
    // A general instruction: what it reads from memory may only be the compiler's own words.
    let reads = operands.iter().enumerate().filter(|(place, _)| *place > 0 || name != "mov");
    reads.map(|(_, operand)| *operand).filter(|operand| operand.contains('[')).any(|operand| {
        let own = operand.contains("[rip+")
            || stack(operand)
                .is_some_and(|at| vectors.iter().all(|v| at.end <= v.start || v.end <= at.start));
        !own
    })
}

fn mnemonic(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

fn operands(line: &str) -> Vec<&str> {
    let line = line.split('#').next().unwrap_or_default();
    let rest = line.trim().strip_prefix(mnemonic(line)).unwrap_or_default();
    rest.split(',').map(str::trim).filter(|operand| !operand.is_empty()).collect()
}

fn is_conditional_jump(line: &str) -> bool {
    mnemonic(line).starts_with('j') && mnemonic(line) != "jmp"
}

/// Which bytes of the stack an operand names, counted from its pointer.
fn stack(operand: &str) -> Option<Range<i64>> {
    let (kind, place) = operand.split_once(" PTR [rsp")?;
    let len = match kind {
        "BYTE" => 1,
        "WORD" => 2,
        "DWORD" => 4,
        "QWORD" => 8,
        "XMMWORD" => 16,
        "YMMWORD" => 32,
        _ => 64,
    };
    let at = match place.strip_suffix(']')? {
        "" => 0,
        offset => i64::from_str_radix(offset.strip_prefix("+0x")?, 16).ok()?,
    };
    Some(at..at + len)
}
