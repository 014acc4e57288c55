//! The end of a job reaches its dependents, and so does its return. In bounded slices.

use crate::cancel;
use crate::dependency::{self, Owes, Revival};
use crate::id::{JobId, Seq, WorkflowId};
use crate::job::Job;
use crate::retry::Home;
use crate::state::{Ending, StateKind};

use super::admin::standing;
use super::propagation_queue::{News, Place};
use super::queue::Farewell;
use super::records::Records;
use super::{Stop, Turn, if_there};

/// What dependents are told.
#[derive(Clone, Copy)]
enum Message {
    Ended(Ending),
    Returned,
    /// With its whole workflow.
    LivesAnew(Option<WorkflowId>),
    ReturnedAndEnded(Ending),
}

fn workflow_of(job: &Job) -> Option<WorkflowId> {
    job.membership.as_ref().map(|membership| membership.workflow)
}

impl<R: Records> Turn<'_, R> {
    /// Tells dependents what they are owed, oldest news first, until about `records_max` records were touched. Says how many were.
    pub(crate) fn tell_dependents(&mut self, records_max: usize) -> Result<usize, R::Error> {
        let start = self.touched;
        while self.touched - start < records_max {
            let Some((place, news)) = self.engine.owed.first() else { break };
            let seen = self.look(news.of, |job| (job.id, Ending::of(job.kind()), job.owes, workflow_of(job)));
            let (id, message) = match if_there(seen)?.flatten() {
                Some((id, Some(ending), Owes::End, _)) => (id, Message::Ended(ending)),
                Some((id, None, Owes::Return, _)) => (id, Message::Returned),
                Some((id, None, Owes::NewLife, workflow)) => (id, Message::LivesAnew(workflow)),
                Some((id, Some(ending), Owes::ReturnAndEnd, _)) => (id, Message::ReturnedAndEnded(ending)),
                // There is nothing to tell any more.
                Some((_, _, Owes::Nothing | Owes::End | Owes::Return | Owes::NewLife | Owes::ReturnAndEnd, _))
                | None => {
                    self.engine.set_owed(place, None);
                    continue;
                }
            };
            let room = records_max - (self.touched - start);
            // One more than fits says whether there are more.
            let slice = self.records.dependents(news.of, news.told, room.saturating_add(1))?;
            let mut told = news.told;
            let mut complete = slice.len() <= room;
            for dependent in slice.iter().take(room) {
                if self.touched - start >= records_max {
                    complete = false;
                    break;
                }
                if_there(self.tell(*dependent, id, message))?;
                told = *dependent;
            }
            self.finish_news(place, News { told, ..news }, complete)?;
        }
        Ok(self.touched - start)
    }

    /// Notes how far the oldest news has come; telling only adds others behind it.
    fn finish_news(&mut self, place: Place, news: News, complete: bool) -> Result<(), R::Error> {
        if !complete {
            self.engine.set_owed(place, Some(news));
            return Ok(());
        }
        self.engine.set_owed(place, None);
        if_there(self.change(news.of, |job, _| {
            job.owes = Owes::Nothing;
            Ok(())
        }))?;
        Ok(())
    }

    /// How the queue of a job takes its leave, if it is about to.
    fn farewell(&mut self, seq: Seq) -> Result<Option<Farewell>, Stop<R::Error>> {
        if self.engine.leaving.is_empty() {
            return Ok(None);
        }
        let queue = self.look(seq, |job| job.queue.clone())?;
        Ok(queue.and_then(|queue| self.engine.queues.get(&queue)?.leaving))
    }

    /// Only those who run again with their workflow wait for the next end: for all others one has been enough.
    fn as_heard_by(&mut self, seq: Seq, message: Message) -> Result<Message, Stop<R::Error>> {
        let Message::LivesAnew(workflow) = message else { return Ok(message) };
        let along = self.look(seq, |job| job.live() && workflow_of(job) == workflow)?;
        Ok(if along == Some(true) { message } else { Message::Returned })
    }

    fn tell(&mut self, seq: Seq, id: JobId, message: Message) -> Result<(), Stop<R::Error>> {
        let message = self.as_heard_by(seq, message)?;
        match message {
            Message::Returned | Message::LivesAnew(_) | Message::ReturnedAndEnded(Ending::Completed) => {
                self.revive(seq, id)?;
            }
            // Whoever ended through this job would come back only to end again.
            Message::ReturnedAndEnded(Ending::Failed | Ending::DeadLetter | Ending::Cancelled) => {}
            Message::Ended(_) => {}
        }
        let farewell = self.farewell(seq)?;
        let cancel = self.will_be_cancelled(seq)?;
        self.change_at_home(seq, |job, home, moment| {
            if let Some((reason, force)) = cancel.filter(|_| job.kind() == StateKind::Pending) {
                // Its turn would come a little later: the slices must not show.
                dependency::note_any(job, id);
                cancel::cancel(job, reason.as_deref(), force, moment)?;
                return Ok(());
            }
            match (home, message) {
                // Its queue is leaving and would end it a little later: the slices must not show.
                (Home::Deleted, _) if job.kind() == StateKind::Pending => match farewell {
                    Some(Farewell::LetRunningFinish) => cancel::vanish_with_queue(job, moment),
                    Some(Farewell::Cancel) | None => cancel::end_with_queue(job, moment),
                },
                (_, Message::LivesAnew(_)) => {}
                (Home::Deleted, _) => dependency::note_any(job, id),
                (Home::Exists(_), Message::Ended(ending) | Message::ReturnedAndEnded(ending)) => {
                    dependency::hear_of_end(job, id, ending, moment);
                }
                (Home::Exists(_), Message::Returned) => dependency::hear_of_return(job, id, moment),
            }
            Ok(())
        })
    }

    /// Returns a dependent that ended through this job to pending; it owes the same to its own.
    fn revive(&mut self, seq: Seq, dependency: JobId) -> Result<(), Stop<R::Error>> {
        let seen = self.look(seq, |job| {
            let through = job.dependencies.ended_through;
            let concerned = through.is_some_and(|through| through.dependency == dependency);
            concerned.then(|| (job.queue.clone(), job.dependencies.all()))
        })?;
        let Some((queue, dependencies)) = seen.flatten() else { return Ok(()) };
        if self.engine.queue(&queue).is_none() || self.will_be_rerun(seq)? {
            return Ok(());
        }
        self.touched += dependencies.len();
        let standings = self.standings(&dependencies)?;
        self.change(seq, |job, moment| {
            let own = job.dependencies.clone();
            match dependency::revive(job, dependency, own, |id| standing(&standings, id), moment) {
                Revival::Revived | Revival::StaysEnded | Revival::Untouched => Ok(()),
            }
        })
    }
}
