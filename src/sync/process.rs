//! The process that made an object.

/// A forked child has copies of the objects of its parent. A lock in a copy may be held by a thread that does
/// not exist in the child, and a socket is still the one of the parent. So what is dropped in a child takes
/// no lock and ends no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Process {
        Process(std::process::id())
    }

    /// Whether this process made the object. `false` in a forked child.
    pub(crate) fn is_this(self) -> bool {
        self == Process::this()
    }
}
