//! Resolves the dependencies of a batch to existing jobs or to other items.

use std::collections::HashSet;

use longshore_core::dependency::DependencyStatus;
use longshore_core::id::JobId;
use longshore_core::refusal::Refusal;
use longshore_core::submit::{self, DependencyRef, RefIndex};

use super::plan::{BatchItem, BatchPlan, DependencyTarget, ExistingDependency, ItemDependencies};
use super::request::ItemRefs;
use crate::context::{CommandContext, CommandError};
use crate::records::JobRecords;

impl<R: JobRecords> CommandContext<'_, R> {
    /// Resolves the dependencies of all items into the plan. Returns the errors.
    pub(super) fn resolve_dependencies(
        &mut self,
        items: &[ItemRefs<'_>],
        refs: &RefIndex,
        plan: &mut BatchPlan,
    ) -> Result<Vec<(usize, Refusal)>, CommandError<R::Error>> {
        let mut errors = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let is_duplicate =
                matches!(plan.items.get(index), Some(Some(BatchItem::Duplicate(_) | BatchItem::DuplicateInBatch(_))));
            let resolved = if is_duplicate {
                Ok(ItemDependencies::default())
            } else {
                self.resolve_dependencies_of(item, refs, plan)
            };
            let dependencies = match resolved {
                Ok(dependencies) => dependencies,
                Err(CommandError::Refused(refusal)) => {
                    errors.push((index, refusal));
                    ItemDependencies::default()
                }
                Err(error @ CommandError::Storage(_)) => return Err(error),
            };
            plan.dependencies.push(dependencies);
        }
        Ok(errors)
    }

    fn resolve_dependencies_of(
        &mut self,
        item: &ItemRefs<'_>,
        refs: &RefIndex,
        plan: &mut BatchPlan,
    ) -> Result<ItemDependencies, CommandError<R::Error>> {
        submit::check_breadth(item.after, item.after_any)?;
        let (after, after_any) =
            (resolve_list("after", item.after, refs, plan)?, resolve_list("after_any", item.after_any, refs, plan)?);
        for (target, place) in after.iter().chain(&after_any) {
            match target {
                DependencyTarget::Job(id) => self.load_dependency(*id, place, plan)?,
                DependencyTarget::Item(_) => {}
            }
        }
        let targets = |list: Vec<(DependencyTarget, Place)>| list.into_iter().map(|(target, _)| target).collect();
        Ok(ItemDependencies { after: targets(after), after_any: targets(after_any) })
    }

    /// Reads an existing job that items depend on.
    fn load_dependency(
        &mut self,
        id: JobId,
        place: &Place,
        plan: &mut BatchPlan,
    ) -> Result<(), CommandError<R::Error>> {
        if plan.existing.contains_key(&id) {
            return Ok(());
        }
        let unknown = || place.unknown(id.to_string());
        let seq = self.records.seq_of(id).map_err(CommandError::Storage)?.ok_or_else(unknown)?;
        let dependency = self.with_job(seq, |job| ExistingDependency {
            status: DependencyStatus::of(job),
            priority: job.effective_priority(),
            depth: job.dependencies.depth,
        })?;
        plan.existing.insert(id, dependency.ok_or_else(unknown)?);
        Ok(())
    }
}

/// Where a dependency was given: the list and the position in it.
struct Place {
    list: &'static str,
    position: usize,
}

impl Place {
    fn unknown(&self, name: String) -> Refusal {
        Refusal::DependencyUnknown { field: format!("{}[{}]", self.list, self.position), name }
    }
}

/// Resolves references without duplicates.
///
/// The position does not count dependencies that follow from the form of a workflow.
fn resolve_list(
    list: &'static str,
    references: &[DependencyRef],
    refs: &RefIndex,
    plan: &BatchPlan,
) -> Result<Vec<(DependencyTarget, Place)>, Refusal> {
    let (mut seen, mut targets) = (HashSet::new(), Vec::with_capacity(references.len()));
    let mut position = 0;
    for reference in references {
        let place = Place { list, position };
        position += match reference {
            DependencyRef::Job(_) | DependencyRef::Local(_) => 1,
            DependencyRef::BatchIndex(_) => 0,
        };
        let target = match reference {
            DependencyRef::Job(id) => DependencyTarget::Job(*id),
            DependencyRef::Local(name) => {
                let in_batch = refs.get(name).map(|index| plan.target_at(*index));
                let in_workflow = || plan.earlier_members.get(name).map(|id| DependencyTarget::Job(*id));
                let unknown = || place.unknown(format!("#{name}"));
                in_batch.or_else(in_workflow).ok_or_else(unknown)?
            }
            DependencyRef::BatchIndex(index) if *index < plan.items.len() => plan.target_at(*index),
            DependencyRef::BatchIndex(index) => {
                return Err(place.unknown(format!("job {index} of the batch")));
            }
        };
        if seen.insert(target) {
            targets.push((target, place));
        }
    }
    Ok(targets)
}
