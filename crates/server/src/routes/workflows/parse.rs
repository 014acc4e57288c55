//! Parses jobs, chains, groups and chords into a batch, and their shape into dependencies.

use longshore_api::workflow::{Chord, Nested, NewWorkflow};
use longshore_core::id::QueueName;
use longshore_core::limits::WORKFLOW_JOBS_MAX;
use longshore_core::submit::DependencyRef;
use longshore_core::workflow_shape::{WorkflowShape, flatten};
use longshore_engine::ParsedSubmission;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::routes::batch::{Batch, QueueField};
use crate::wire::json;
use crate::wire::problem::{ApiError, ItemError};

/// The parsed body of a workflow; the batch keeps the errors of invalid jobs.
#[derive(Default)]
pub(super) struct ParsedWorkflow {
    pub batch: Batch,
    /// Indexes of the jobs that each job waits for because of the shape.
    after: Vec<Vec<usize>>,
}

pub(super) type WorkflowBody<'a> = NewWorkflow<&'a RawValue>;

impl ParsedWorkflow {
    /// Returns `None` for a body without jobs; rejects more than one form.
    pub(super) fn parse(body: &WorkflowBody<'_>) -> Result<Option<Self>, ApiError> {
        let queue = body.queue.as_deref().map(QueueName::new).transpose()?;
        let mut parser = ShapeParser { batch: Batch::default(), queue };
        let NewWorkflow { jobs, chain, group, chord, .. } = body;
        let forms = [jobs.is_some(), chain.is_some(), group.is_some(), chord.is_some()];
        if forms.into_iter().filter(|is_set| *is_set).count() > 1 {
            return Err(ApiError::validation("jobs", "specify exactly one of jobs, chain, group, chord"));
        }
        let shape = match (jobs, chain, group, chord) {
            (Some(jobs), ..) if jobs.is_empty() => return Ok(None),
            (Some(jobs), ..) => {
                WorkflowShape::Group(jobs.iter().map(|job| parser.job(job, None)).collect::<Result<_, _>>()?)
            }
            (None, None, None, None) => return Ok(None),
            (None, chain, group, chord) => parser.shape("", chain.as_deref(), group.as_deref(), chord.as_ref())?,
        };
        let after = flatten(shape)?.into_iter().map(|job| job.after).collect();
        Ok(Some(Self { batch: parser.batch, after }))
    }

    /// Returns the batch, and a function that adds the dependencies of the shape to its jobs.
    pub(super) fn split(self) -> (Batch, impl FnOnce(Vec<ParsedSubmission>) -> Vec<ParsedSubmission>) {
        let Self { batch, after } = self;
        let add_dependencies = |mut jobs: Vec<ParsedSubmission>| {
            for (submission, after) in jobs.iter_mut().zip(after) {
                let after = after.into_iter().map(DependencyRef::BatchIndex);
                match submission {
                    Ok(submission) => submission.job.after.extend(after),
                    Err(invalid) => invalid.after.extend(after),
                }
            }
            jobs
        };
        (batch, add_dependencies)
    }
}

struct ShapeParser {
    batch: Batch,
    queue: Option<QueueName>,
}

impl ShapeParser {
    /// Adds a job to the batch. `path` is its JSON path if it is not in `jobs`.
    fn job(&mut self, text: &RawValue, path: Option<String>) -> Result<WorkflowShape<()>, ApiError> {
        if self.batch.members.len() >= WORKFLOW_JOBS_MAX {
            let limit = format!("must be at most {WORKFLOW_JOBS_MAX} jobs in one call");
            return Err(ApiError::validation("jobs", &limit));
        }
        let (queue, own_queue) = match &self.queue {
            Some(queue) => (queue.clone(), QueueField::Allowed),
            None => (QueueName::new("default")?, QueueField::Required),
        };
        match path {
            Some(path) => self.batch.add_at(path, text.get(), &queue, own_queue),
            None => self.batch.add(text.get(), &queue, own_queue),
        }
        Ok(WorkflowShape::Job(()))
    }

    fn step(&mut self, text: &RawValue, path: String) -> Result<WorkflowShape<()>, ApiError> {
        if !is_shape(text.get()) {
            return self.job(text, Some(path));
        }
        let inside = |error: ItemError| ApiError::from(error).inside(&path);
        let Nested::<&RawValue> { chain, group, chord } = json::object(text.get()).map_err(inside)?;
        if [chain.is_some(), group.is_some(), chord.is_some()].into_iter().filter(|is_set| *is_set).count() > 1 {
            let several = "specify exactly one of chain, group, chord";
            return Err(ApiError::validation("chain", several).inside(&path));
        }
        self.shape(&format!("{path}."), chain.as_deref(), group.as_deref(), chord.as_ref())
    }

    /// `prefix` is the path of the shape with a dot, or empty for the body itself.
    fn shape(
        &mut self,
        prefix: &str,
        chain: Option<&[&RawValue]>,
        group: Option<&[&RawValue]>,
        chord: Option<&Chord<&RawValue>>,
    ) -> Result<WorkflowShape<()>, ApiError> {
        match (chain, group, chord) {
            (Some(chain), ..) => Ok(WorkflowShape::Chain(self.steps(chain, &format!("{prefix}chain"))?)),
            (_, Some(group), _) => Ok(WorkflowShape::Group(self.steps(group, &format!("{prefix}group"))?)),
            (_, _, Some(chord)) => {
                let group = self.steps(&chord.group, &format!("{prefix}chord.group"))?;
                let finally = self.step(chord.finally, format!("{prefix}chord.finally"))?;
                Ok(WorkflowShape::Chord { group, finally: Box::new(finally) })
            }
            (None, None, None) => Err(ApiError::validation("jobs", "is required, or chain, group or chord")),
        }
    }

    fn steps(&mut self, steps: &[&RawValue], list: &str) -> Result<Vec<WorkflowShape<()>>, ApiError> {
        steps.iter().enumerate().map(|(index, step)| self.step(step, format!("{list}[{index}]"))).collect()
    }
}

/// Whether an item is a nested shape, not a job.
fn is_shape(text: &str) -> bool {
    #[derive(Deserialize)]
    struct ShapeFields {
        chain: Option<IgnoredAny>,
        group: Option<IgnoredAny>,
        chord: Option<IgnoredAny>,
    }
    let fields: Option<ShapeFields> = serde_json::from_str(text).ok();
    fields.is_some_and(|fields| fields.chain.is_some() || fields.group.is_some() || fields.chord.is_some())
}
