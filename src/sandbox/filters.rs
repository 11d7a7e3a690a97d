//! The system call filters of a box, ready to load.

/// What `every` leaves to pid 1 is refused only where a program asks pid 1: the two are made
/// together or `every` refuses by itself.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// For all processes of the box; the narrower one last.
    pub every: Vec<Vec<u8>>,
    /// For each program, whose questions pid 1 answers.
    pub program: Option<Vec<u8>>,
}
