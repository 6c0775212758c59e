use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::judge::Judge;
use super::{TensorRecord, Trace, TraceRecord};
use crate::observe::{Call, Extremes, Observer, Pending, Phase, Role, Sight, Source};

/// Tensors whose extremes the device may hold back before they are read: enough that the host seldom
/// waits, few enough that their small tensors do not count.
const MOST_PENDING: usize = 2048;

/// The observer behind a tracer: a ring of calls, judged when they leave it.
pub(super) struct Recorder {
    capacity: usize,
    entries: VecDeque<Entry>,
    /// The position of a call among all entries ever made.
    positions: HashMap<(u64, Phase), u64>,
    dropped: u64,
    pending: usize,
    saw_gradients: bool,
    judge: Judge,
}

struct Entry {
    call: Arc<Call>,
    phase: Phase,
    tensors: Vec<Seen>,
}

struct Seen {
    record: TensorRecord,
    source: Source,
    pending: Option<Pending>,
}

impl Seen {
    fn read(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.record.extremes = pending.read();
        }
    }
}

impl Recorder {
    /// Keeps `capacity` calls; a loss scale at `floor` cannot go lower.
    pub(super) fn new(capacity: usize, floor: f32) -> Self {
        Recorder {
            capacity: capacity.max(1),
            entries: VecDeque::new(),
            positions: HashMap::new(),
            dropped: 0,
            pending: 0,
            saw_gradients: false,
            judge: Judge::new(floor),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads everything and says what was found.
    pub(super) fn finish(mut self) -> Trace {
        self.settle();
        let entries = std::mem::take(&mut self.entries);
        let records = entries.iter().map(|entry| self.judged(entry)).collect();
        Trace {
            records,
            dropped: self.dropped,
            findings: self.judge.findings,
            loss_scale: self.judge.loss_scale,
            saw_gradients: self.saw_gradients,
        }
    }

    fn settle(&mut self) {
        for seen in self.entries.iter_mut().flat_map(|e| &mut e.tensors) {
            seen.read();
        }
        self.pending = 0;
    }

    fn judged(&mut self, entry: &Entry) -> TraceRecord {
        let record = TraceRecord {
            call: entry.call.id,
            phase: entry.phase,
            op: entry.call.name().to_string(),
            place: entry.call.place.clone(),
            rule: entry.call.rule,
            tensors: entry
                .tensors
                .iter()
                .map(|seen| seen.record.clone())
                .collect(),
        };
        let sources: Vec<(Role, Source)> = entry
            .tensors
            .iter()
            .map(|seen| (seen.record.role, seen.source.clone()))
            .collect();
        self.judge.hear(&entry.call, &record, &sources);
        record
    }

    fn drop_oldest(&mut self) {
        if let Some(mut entry) = self.entries.pop_front() {
            for seen in &mut entry.tensors {
                self.pending -= usize::from(seen.pending.is_some());
                seen.read();
            }
            self.positions.remove(&(entry.call.id, entry.phase));
            self.dropped += 1;
            self.judged(&entry);
        }
    }

    fn entry(&mut self, call: &Arc<Call>, phase: Phase) -> &mut Entry {
        let key = (call.id, phase);
        if !self.positions.contains_key(&key) {
            if self.entries.len() == self.capacity {
                self.drop_oldest();
            }
            let position = self.dropped + self.entries.len() as u64;
            self.positions.insert(key, position);
            self.entries.push_back(Entry {
                call: call.clone(),
                phase,
                tensors: Vec::new(),
            });
        }
        let position = (self.positions[&key] - self.dropped) as usize;
        &mut self.entries[position]
    }
}

impl Observer for Recorder {
    fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>) {
        if self.pending >= MOST_PENDING {
            self.settle();
        }
        self.pending += 1;
        self.saw_gradients |= sight.phase == Phase::Backward;
        let seen = Seen {
            record: TensorRecord {
                role: sight.role,
                shape: sight.shape.to_vec(),
                dtype: sight.dtype,
                inside: sight.inside,
                casting: sight.casting,
                extremes: Extremes::default(),
            },
            source: sight.source.clone(),
            pending: Some(sight.values.extremes()),
        };
        let tensors = &mut self.entry(call, sight.phase).tensors;
        // A second sight of a tensor in backward is its gradient; the first was checkpointing.
        match tensors.iter_mut().find(|t| t.record.role == sight.role) {
            Some(earlier) => *earlier = seen,
            None => tensors.push(seen),
        }
    }

    fn backward_begins(&mut self, loss_scale: Option<f32>) {
        self.judge.loss_scale = loss_scale;
    }
}
