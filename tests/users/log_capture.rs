//! The warnings of one thread: tests run side by side.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static WARNINGS: RefCell<Vec<String>> = RefCell::default();
}

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            WARNINGS.with_borrow_mut(|warnings| warnings.push(record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// What a block warns of on this thread.
pub fn warnings(block: impl FnOnce()) -> Vec<String> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        log::set_logger(&Capture).expect("the only logger of this process");
        log::set_max_level(log::LevelFilter::Warn);
    });
    WARNINGS.take();
    block();
    WARNINGS.take()
}
