//! Which refusals were written down lately, so that a program that asks the same again and again,
//! or for ever new names, fills no journal.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::policy::egress::Name;

/// The same name is written down once in this time, and no more than so many names.
const LATELY: Duration = Duration::from_secs(60);
const MOST: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Told {
    names: HashSet<Name>,
    in_order: VecDeque<(Instant, Name)>,
}

impl Told {
    /// Whether it is to be written down now.
    pub(super) fn is_news(&mut self, name: &Name, now: Instant) -> bool {
        while let Some((when, _)) = self.in_order.front()
            && now.saturating_duration_since(*when) >= LATELY
        {
            if let Some((_, old)) = self.in_order.pop_front() {
                self.names.remove(&old);
            }
        }
        let is_news = self.names.len() < MOST && !self.names.contains(name);
        if is_news {
            self.names.insert(name.clone());
            self.in_order.push_back((now, name.clone()));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        Name::parse(&format!("n{number}.example")).unwrap()
    }

    #[test]
    fn a_name_is_news_once_in_a_while() {
        let mut told = Told::default();
        let start = Instant::now();
        assert!(told.is_news(&name(1), start));
        assert!(!told.is_news(&name(1), start));
        assert!(told.is_news(&name(2), start + LATELY / 2));
        assert!(!told.is_news(&name(1), start + LATELY - Duration::from_millis(1)));
        assert!(told.is_news(&name(1), start + LATELY));
        assert!(!told.is_news(&name(2), start + LATELY));
    }

    #[test]
    fn a_flood_of_names_is_cut_and_then_forgotten() {
        let mut told = Told::default();
        let start = Instant::now();
        let news = (0..100_000).filter(|number| told.is_news(&name(*number), start));
        assert_eq!(news.count(), MOST);
        assert_eq!(told.in_order.len(), MOST);
        assert!(told.is_news(&name(MOST + 1), start + LATELY));
        assert_eq!(told.names.len(), 1);
    }
}
