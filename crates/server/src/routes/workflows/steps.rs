//! Chains, groups and chords as they are written: each job goes into the batch, its place into the shape.

use longshore_api::workflow::{Chord, Nested, NewWorkflow};
use longshore_core::engine::Submission;
use longshore_core::id::QueueName;
use longshore_core::limits::WORKFLOW_JOBS_MAX;
use longshore_core::shape::{Shape, flatten};
use longshore_core::submit::DependencyRef;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::routes::batch::{Batch, OwnQueue};
use crate::wire::json;
use crate::wire::problem::Failure;

/// What the body of a workflow holds, read as far as that goes.
#[derive(Default)]
pub(super) struct Steps {
    pub batch: Batch,
    /// Places of jobs that wait for others by the shape that they stand in.
    after: Vec<Vec<usize>>,
}

pub(super) type Given<'a> = NewWorkflow<&'a RawValue>;

impl Steps {
    /// Nothing at all is `None`; more than one form is refused.
    pub(super) fn read(given: &Given<'_>) -> Result<Option<Self>, Failure> {
        let queue = given.queue.as_deref().map(QueueName::new).transpose()?;
        let mut reader = Reader { batch: Batch::default(), queue };
        let NewWorkflow { jobs, chain, group, chord, .. } = given;
        let forms = [jobs.is_some(), chain.is_some(), group.is_some(), chord.is_some()];
        if forms.into_iter().filter(|given| *given).count() > 1 {
            return Err(Failure::validation(
                "jobs",
                "goes without chain, group and chord, and those without each other",
            ));
        }
        let shape = match (jobs, chain, group, chord) {
            (Some(jobs), ..) if jobs.is_empty() => return Ok(None),
            (Some(jobs), ..) => Shape::Group(jobs.iter().map(|job| reader.job(job)).collect::<Result<_, _>>()?),
            (None, None, None, None) => return Ok(None),
            (None, chain, group, chord) => reader.shape(chain.as_deref(), group.as_deref(), chord.as_ref())?,
        };
        let after = flatten(shape)?.into_iter().map(|placed| placed.after).collect();
        Ok(Some(Self { batch: reader.batch, after }))
    }

    /// The batch, and what makes the dependencies of the shape out of its members.
    pub(super) fn split(self) -> (Batch, impl FnOnce(Vec<Submission>) -> Vec<Submission>) {
        let Self { batch, after } = self;
        let tie = |mut members: Vec<Submission>| {
            for (member, after) in members.iter_mut().zip(after) {
                member.job.after.extend(after.into_iter().map(DependencyRef::Place));
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
    /// Jobs are put into the batch in the order in which the shape names them.
    fn job(&mut self, text: &RawValue) -> Result<Shape<()>, Failure> {
        if self.batch.members.len() >= WORKFLOW_JOBS_MAX {
            let limit = format!("must be at most {WORKFLOW_JOBS_MAX} jobs in one call");
            return Err(Failure::validation("jobs", &limit));
        }
        match &self.queue {
            Some(queue) => self.batch.add(text.get(), queue, OwnQueue::Allowed)?,
            None => self.batch.add(text.get(), &QueueName::new("default")?, OwnQueue::Required)?,
        }
        Ok(Shape::Job(()))
    }

    fn step(&mut self, text: &RawValue) -> Result<Shape<()>, Failure> {
        if !is_shape(text.get()) {
            return self.job(text);
        }
        let Nested::<&RawValue> { chain, group, chord } = json::object(text.get())?;
        if [chain.is_some(), group.is_some(), chord.is_some()].into_iter().filter(|given| *given).count() > 1 {
            return Err(Failure::validation("chain", "goes without group and chord, and those without each other"));
        }
        self.shape(chain.as_deref(), group.as_deref(), chord.as_ref())
    }

    fn shape(
        &mut self,
        chain: Option<&[&RawValue]>,
        group: Option<&[&RawValue]>,
        chord: Option<&Chord<&RawValue>>,
    ) -> Result<Shape<()>, Failure> {
        match (chain, group, chord) {
            (Some(chain), ..) => Ok(Shape::Chain(self.steps(chain)?)),
            (_, Some(group), _) => Ok(Shape::Group(self.steps(group)?)),
            (_, _, Some(chord)) => {
                let group = self.steps(&chord.group)?;
                Ok(Shape::Chord { group, finally: Box::new(self.step(chord.finally)?) })
            }
            (None, None, None) => Err(Failure::validation("jobs", "is required, or chain, group or chord")),
        }
    }

    fn steps(&mut self, steps: &[&RawValue]) -> Result<Vec<Shape<()>>, Failure> {
        steps.iter().map(|step| self.step(step)).collect()
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
