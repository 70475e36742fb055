//! The selected row of a list, and the part of the list that is on the screen.

/// A move of the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

#[derive(Clone, Debug, Default)]
pub struct Scroll {
    /// The index of the selected row.
    pub at: usize,
    /// The index of the first row on the screen.
    pub first: usize,
    /// The number of rows on the screen.
    height: usize,
}

impl Scroll {
    /// Moves the selection in a list of this length.
    pub fn step(&mut self, step: Step, length: usize) {
        let page = self.height.max(1);
        self.at = match step {
            Step::Up => self.at.saturating_sub(1),
            Step::Down => self.at.saturating_add(1),
            Step::PageUp => self.at.saturating_sub(page),
            Step::PageDown => self.at.saturating_add(page),
            Step::Home => 0,
            Step::End => usize::MAX,
        };
        self.fit(self.height, length);
    }

    /// Keeps the selection in the list and on the screen.
    pub fn fit(&mut self, height: usize, length: usize) {
        self.height = height;
        self.at = self.at.min(length.saturating_sub(1));
        let last_first = length.saturating_sub(height);
        let lowest = (self.at + 1).saturating_sub(height);
        self.first = self.first.max(lowest).min(self.at).min(last_first.max(lowest));
    }

    /// The rows that are on the screen.
    pub fn window<'a, T>(&self, rows: &'a [T]) -> &'a [T] {
        let end = self.first.saturating_add(self.height).min(rows.len());
        rows.get(self.first..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_stays_in_the_list_and_on_the_screen() {
        let rows: Vec<u32> = (0..10).collect();
        let mut scroll = Scroll::default();
        scroll.fit(3, 10);
        let mut after = |step| {
            scroll.step(step, 10);
            (scroll.at, scroll.window(&rows).to_vec())
        };
        assert_eq!(after(Step::Up), (0, vec![0, 1, 2]));
        assert_eq!(after(Step::Down), (1, vec![0, 1, 2]));
        assert_eq!(after(Step::PageDown), (4, vec![2, 3, 4]));
        assert_eq!(after(Step::Up), (3, vec![2, 3, 4]));
        assert_eq!(after(Step::End), (9, vec![7, 8, 9]));
        assert_eq!(after(Step::PageDown), (9, vec![7, 8, 9]));
        assert_eq!(after(Step::PageUp), (6, vec![6, 7, 8]));
        assert_eq!(after(Step::Home), (0, vec![0, 1, 2]));
    }

    #[test]
    fn a_shorter_list_and_a_smaller_screen_move_the_selection() {
        let rows: Vec<u32> = (0..10).collect();
        let mut scroll = Scroll { at: 9, first: 7, height: 3 };
        scroll.fit(2, 10);
        assert_eq!((scroll.at, scroll.window(&rows)), (9, &rows[8..]));
        scroll.fit(5, 4);
        assert_eq!((scroll.at, scroll.window(&rows[..4])), (3, &rows[..4]));
        scroll.fit(0, 0);
        assert_eq!((scroll.at, scroll.window(&rows[..0]).len()), (0, 0));
    }
}
