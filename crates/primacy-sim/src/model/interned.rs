//! Interning: each distinct value is stored once and has a number. So a state of many nodes is a few numbers.

use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

use super::fold::BuildFold;

/// The values, numbered in the order of their insertion.
#[derive(Debug)]
pub(super) struct Interned<T> {
    numbers: HashMap<Rc<T>, u32, BuildFold>,
    values: Vec<Rc<T>>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { numbers: HashMap::default(), values: Vec::new() }
    }
}

impl<T: Hash + Eq> Interned<T> {
    /// Returns the number of this value, and whether it is new.
    ///
    /// # Panics
    /// After 2³² values.
    pub(super) fn number(&mut self, value: T) -> (u32, bool) {
        if let Some(&number) = self.numbers.get(&value) {
            return (number, false);
        }
        let number = u32::try_from(self.values.len()).expect("fewer than 2^32 values");
        let value = Rc::new(value);
        self.values.push(Rc::clone(&value));
        self.numbers.insert(value, number);
        (number, true)
    }

    pub(super) fn value(&self, number: u32) -> &Rc<T> {
        &self.values[number as usize]
    }
}
