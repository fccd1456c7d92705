//! The log as JSON objects, one a line, among those of the events.

use std::fmt;

use primacy::stores::error_text::shortened;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::report::Reporter;

/// Writes what is logged in the form of the events: `"event":"log"`, the level, the target, and the fields of the line.
#[derive(Debug)]
pub(crate) struct JsonLog(pub(crate) Reporter);

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
    for JsonLog
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        // Inserted after the fields, so that no field can replace it.
        fields.0.insert("level".to_owned(), metadata.level().as_str().to_ascii_lowercase().into());
        fields.0.insert("target".to_owned(), metadata.target().into());
        writer.write_str(&self.0.log_line(fields.0))
    }
}

/// The fields of a line: numbers and booleans as they are, all other values as text.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), shortened(value).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), shortened(&format!("{value:?}")).into());
    }
}
