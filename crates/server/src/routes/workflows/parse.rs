//! Chains, groups and chords as they are written: each job goes into the batch, its place into the shape.

use longshore_api::workflow::{Chord, Nested, NewWorkflow};
use longshore_core::id::QueueName;
use longshore_core::limits::WORKFLOW_JOBS_MAX;
use longshore_core::submit::DependencyRef;
use longshore_core::workflow_shape::{WorkflowShape, flatten};
use longshore_engine::Submission;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::routes::batch::{Batch, QueueField};
use crate::wire::json;
use crate::wire::problem::{ApiError, ItemError};

/// What the body of a workflow holds, read as far as that goes.
#[derive(Default)]
pub(super) struct ParsedWorkflow {
    pub batch: Batch,
    /// Places of jobs that wait for others by the shape that they stand in.
    after: Vec<Vec<usize>>,
}

pub(super) type Given<'a> = NewWorkflow<&'a RawValue>;

impl ParsedWorkflow {
    /// Nothing at all is `None`; more than one form is refused.
    pub(super) fn read(given: &Given<'_>) -> Result<Option<Self>, ApiError> {
        let queue = given.queue.as_deref().map(QueueName::new).transpose()?;
        let mut reader = Reader { batch: Batch::default(), queue };
        let NewWorkflow { jobs, chain, group, chord, .. } = given;
        let forms = [jobs.is_some(), chain.is_some(), group.is_some(), chord.is_some()];
        if forms.into_iter().filter(|given| *given).count() > 1 {
            return Err(ApiError::validation(
                "jobs",
                "goes without chain, group and chord, and those without each other",
            ));
        }
        let shape = match (jobs, chain, group, chord) {
            (Some(jobs), ..) if jobs.is_empty() => return Ok(None),
            (Some(jobs), ..) => {
                WorkflowShape::Group(jobs.iter().map(|job| reader.job(job, None)).collect::<Result<_, _>>()?)
            }
            (None, None, None, None) => return Ok(None),
            (None, chain, group, chord) => reader.shape("", chain.as_deref(), group.as_deref(), chord.as_ref())?,
        };
        let after = flatten(shape)?.into_iter().map(|placed| placed.after).collect();
        Ok(Some(Self { batch: reader.batch, after }))
    }

    /// The batch, and what makes the dependencies of the shape out of its members.
    pub(super) fn split(self) -> (Batch, impl FnOnce(Vec<Submission>) -> Vec<Submission>) {
        let Self { batch, after } = self;
        let tie = |mut members: Vec<Submission>| {
            for (member, after) in members.iter_mut().zip(after) {
                member.job.after.extend(after.into_iter().map(DependencyRef::BatchIndex));
            }
            members
        };
        (batch, tie)
    }
}

struct Reader {
    batch: Batch,
    queue: Option<QueueName>,
}

impl Reader {
    /// Jobs are put into the batch in the order in which the shape names them. `path`: where the job stands, unless in `jobs`.
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
            Some(path) => self.batch.add_at(path, text.get(), &queue, own_queue)?,
            None => self.batch.add(text.get(), &queue, own_queue)?,
        }
        Ok(WorkflowShape::Job(()))
    }

    fn step(&mut self, text: &RawValue, path: String) -> Result<WorkflowShape<()>, ApiError> {
        if !is_shape(text.get()) {
            return self.job(text, Some(path));
        }
        let inside = |failure: ItemError| ApiError::from(failure).inside(&path);
        let Nested::<&RawValue> { chain, group, chord } = json::object(text.get()).map_err(inside)?;
        if [chain.is_some(), group.is_some(), chord.is_some()].into_iter().filter(|given| *given).count() > 1 {
            let several = "goes without group and chord, and those without each other";
            return Err(ApiError::validation("chain", several).inside(&path));
        }
        self.shape(&format!("{path}."), chain.as_deref(), group.as_deref(), chord.as_ref())
    }

    /// `at`: the path of the shape with a dot, or nothing for the body itself.
    fn shape(
        &mut self,
        at: &str,
        chain: Option<&[&RawValue]>,
        group: Option<&[&RawValue]>,
        chord: Option<&Chord<&RawValue>>,
    ) -> Result<WorkflowShape<()>, ApiError> {
        match (chain, group, chord) {
            (Some(chain), ..) => Ok(WorkflowShape::Chain(self.steps(chain, &format!("{at}chain"))?)),
            (_, Some(group), _) => Ok(WorkflowShape::Group(self.steps(group, &format!("{at}group"))?)),
            (_, _, Some(chord)) => {
                let group = self.steps(&chord.group, &format!("{at}chord.group"))?;
                let finally = self.step(chord.finally, format!("{at}chord.finally"))?;
                Ok(WorkflowShape::Chord { group, finally: Box::new(finally) })
            }
            (None, None, None) => Err(ApiError::validation("jobs", "is required, or chain, group or chord")),
        }
    }

    fn steps(&mut self, steps: &[&RawValue], list: &str) -> Result<Vec<WorkflowShape<()>>, ApiError> {
        steps.iter().enumerate().map(|(place, step)| self.step(step, format!("{list}[{place}]"))).collect()
    }
}

/// Whether it says itself to be more than a job.
fn is_shape(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Loose {
        chain: Option<IgnoredAny>,
        group: Option<IgnoredAny>,
        chord: Option<IgnoredAny>,
    }
    let loose: Option<Loose> = serde_json::from_str(text).ok();
    loose.is_some_and(|loose| loose.chain.is_some() || loose.group.is_some() || loose.chord.is_some())
}
