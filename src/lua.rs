//! The texts of the scripts, from `lua/dist/`.

use luagate_core::script::ScriptName::{self, *};
use luagate_core::script::Scripts;
use once_cell::sync::Lazy;

/// All scripts. Each is hashed at its first use.
pub(crate) static SCRIPTS: Lazy<Scripts> = Lazy::new(|| Scripts::new(text));

macro_rules! dist {
    ($file:literal) => {
        include_str!(concat!("../lua/dist/", $file, ".lua")) // written by `./dev manifest`
    };
}

fn text(name: ScriptName) -> &'static str {
    match name {
        Acquire => dist!("semaphore/acquire"),
        Release => dist!("semaphore/release"),
        Refresh => dist!("semaphore/refresh"),
        Lookup => dist!("semaphore/lookup"),
        Inspect => dist!("semaphore/inspect"),
        Resize => dist!("semaphore/resize"),
        TryAcquireSeveral => dist!("semaphore/try_acquire_several"),
        CountDown => dist!("latch/count_down"),
        Wait => dist!("latch/wait"),
        Count => dist!("latch/count"),
        Delete => dist!("latch/delete"),
        RecentAdd => dist!("autocomplete/recent_add"),
        RecentRemove => dist!("autocomplete/recent_remove"),
        RecentMatch => dist!("autocomplete/recent_match"),
        PrefixAdd => dist!("autocomplete/prefix_add"),
        PrefixRemove => dist!("autocomplete/prefix_remove"),
        PrefixMatch => dist!("autocomplete/prefix_match"),
    }
}
