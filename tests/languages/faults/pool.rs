//! Drivers that run already. A virtual machine computes for a second before its first call, so one driver
//! serves several tests.

use super::client::Client;
use super::driver::Driver;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::time::Duration;

/// The most drivers that wait for a test.
const MOST: usize = 8;

/// The driver that has waited longest is the first one.
static IDLE: Mutex<Vec<(String, Driver)>> = Mutex::new(Vec::new());

/// A driver for one test. After it the driver may serve another test, with other gates.
pub struct Pooled {
    client: String,
    /// Nothing after the test.
    driver: Option<Driver>,
}

impl Pooled {
    /// Without any gate.
    pub fn start(client: &Client) -> Pooled {
        let mut idle = IDLE.lock().unwrap();
        let found = idle.iter().rposition(|(name, _)| *name == client.name);
        let driver = found.map(|place| idle.remove(place).1);
        drop(idle);
        driver.map_or_else(|| Pooled::new(client), |driver| Pooled::of(client, driver))
    }

    /// In a process that served no other test.
    pub fn new(client: &Client) -> Pooled {
        Pooled::of(client, Driver::start(client))
    }

    fn of(client: &Client, driver: Driver) -> Pooled {
        Pooled { client: client.name.clone(), driver: Some(driver) }
    }
}

impl Deref for Pooled {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver.as_ref().expect("a driver until the end of the test")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Driver {
        self.driver.as_mut().expect("a driver until the end of the test")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        if std::thread::panicking() || !driver.closes_all(Duration::from_secs(1)) {
            return;
        }
        let mut idle = IDLE.lock().unwrap();
        if idle.len() == MOST {
            idle.remove(0);
        }
        idle.push((self.client.clone(), driver));
    }
}

/// Ends the drivers that wait for a test.
pub fn end() {
    IDLE.lock().unwrap().clear();
}
