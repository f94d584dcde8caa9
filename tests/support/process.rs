//! What the system tells about a process.

use std::fs;

/// A process by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// Whether it still does anything: one that ended and was not waited for does not.
    pub(crate) fn is_alive(self) -> bool {
        self.stat().is_some_and(|(state, _)| state != "Z" && state != "X")
    }

    /// Those that it started and that are alive.
    pub(crate) fn children(self) -> Vec<Self> {
        let entries = fs::read_dir("/proc").expect("this is Linux").flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let processes = numbers.map(Self).filter(|process| process.is_alive());
        processes.filter(|process| process.stat().is_some_and(|(_, parent)| parent == self.0)).collect()
    }

    /// The most memory that it ever had, in MiB.
    pub(crate) fn peak_mib(self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    /// What it may use, as the system writes it.
    pub(crate) fn limits(self) -> String {
        fs::read_to_string(format!("/proc/{}/limits", self.0)).expect("it runs")
    }

    /// Its state and its parent.
    fn stat(self) -> Option<(String, u32)> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        // Its name, in brackets, may hold anything.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    }
}
