//! Sets the `cfg` under which the files of the library are compiled for the model.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(luagate_model)");
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"tracing\"))"); // a feature of the library
    println!("cargo::rustc-cfg=luagate_model");
}
