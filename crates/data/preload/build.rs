//! How the library is linked.

fn main() {
    // Its constructor runs before those of other libraries, which may already do I/O.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,initfirst");
    // No symbol is looked up lazily, in a signal handler or after fork.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,now");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,relro");
    // dlclose must not take the hooks away while streams and descriptors point at them.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    // Where its variables lie.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo sets it");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-T,{here}/tables.ld");
    println!("cargo:rerun-if-changed=tables.ld");
    println!("cargo:rerun-if-changed=build.rs");
}
