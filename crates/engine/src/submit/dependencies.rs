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
        let dependencies = ItemDependencies {
            after: resolve_list(item.after, refs, plan)?,
            after_any: resolve_list(item.after_any, refs, plan)?,
        };
        for target in dependencies.all() {
            match target {
                DependencyTarget::Job(id) => self.load_dependency(id, plan)?,
                DependencyTarget::Item(_) => {}
            }
        }
        Ok(dependencies)
    }

    /// Reads an existing job that items depend on.
    fn load_dependency(&mut self, id: JobId, plan: &mut BatchPlan) -> Result<(), CommandError<R::Error>> {
        if plan.existing.contains_key(&id) {
            return Ok(());
        }
        let unknown = || Refusal::DependencyUnknown(id.to_string());
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

/// Resolves references without duplicates.
fn resolve_list(
    references: &[DependencyRef],
    refs: &RefIndex,
    plan: &BatchPlan,
) -> Result<Vec<DependencyTarget>, Refusal> {
    let (mut seen, mut targets) = (HashSet::new(), Vec::with_capacity(references.len()));
    for reference in references {
        let target = match reference {
            DependencyRef::Job(id) => DependencyTarget::Job(*id),
            DependencyRef::Local(name) => {
                let in_batch = refs.get(name).map(|index| plan.target_at(*index));
                let in_workflow = || plan.earlier_members.get(name).map(|id| DependencyTarget::Job(*id));
                let unknown = || Refusal::DependencyUnknown(format!("#{name}"));
                in_batch.or_else(in_workflow).ok_or_else(unknown)?
            }
            DependencyRef::BatchIndex(index) if *index < plan.items.len() => plan.target_at(*index),
            DependencyRef::BatchIndex(index) => {
                return Err(Refusal::DependencyUnknown(format!("job {index} of the batch")));
            }
        };
        if seen.insert(target) {
            targets.push(target);
        }
    }
    Ok(targets)
}
