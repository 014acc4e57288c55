//! Every statement, one file each in `sql/`. `@` stands for the schema.

use tokio_postgres::types::Type;

#[derive(Debug)]
pub(crate) struct Sql {
    pub text: String,
    pub types: &'static [Type],
}

macro_rules! statements {
    ($($name:ident [$($type:ident),*])*) => {
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub $name: Sql,)*
        }

        impl Statements {
            pub(crate) fn new(schema: &str) -> Self {
                Self {
                    $($name: Sql {
                        text: include_str!(concat!("../sql/", stringify!($name), ".sql")).replace("@", schema),
                        types: &[$(Type::$type),*],
                    },)*
                }
            }
        }
    };
}

statements! {
    begin [BOOL, INT8, BOOL, INT8]
    end_frozen_sessions [INT8, FLOAT8]
    load_settings []
    is_writable []
    load_queue_names [INT4]
    load_policies [INT4]
    load_queues []
    load_directives []
    set_directive [TEXT, TEXT]
    remove_directive [TEXT]
    report_workers [TEXT, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8]
    remove_workers [INT8]
    reported_workers [TEXT, INT8, INT8]
    bump_catalog_version []
    next_system_revision []
    lock_system_records [INT2_ARRAY, BYTEA_ARRAY]
    insert_system_records [INT2_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8]
    put_system_records [INT2_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY]
    update_system_records [INT2_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8]
    remove_system_records [INT2_ARRAY, BYTEA_ARRAY]
    announce_system_records [INT2_ARRAY]
    system_version [INT2]
    system_records [INT2, BYTEA, BYTEA, INT8]
    system_records_descending [INT2, BYTEA, BYTEA, INT8]
    add_queue_name [INT4, TEXT]
    add_policy [INT4, BYTEA]
    put_queue [INT4, BYTEA, TEXT]
    remove_queue [INT4]
    claim [INT4, INT8, INT8_ARRAY, INT2, INT8]
    claim_types [INT4, INT8, INT8_ARRAY, INT8_ARRAY]
    claim_fifo [INT4, INT8, INT8_ARRAY, INT8]
    claim_fifo_types [INT4, INT8, INT8_ARRAY, INT8_ARRAY, INT8]
    claim_queues [INT4_ARRAY, BOOL_ARRAY, INT4_ARRAY, INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8]
    prefetch_head [INT4, INT8, INT2, INT8]
    lock_jobs [INT8_ARRAY]
    fast_submit [
        INT8, INT8, INT8, INT8, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT2_ARRAY, INT2_ARRAY, INT2_ARRAY, BYTEA_ARRAY,
        INT2_ARRAY, BYTEA_ARRAY, INT4_ARRAY, INT8_ARRAY
    ]
    fast_work [
        INT8, INT8, INT8, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY,
        INT8_ARRAY, BYTEA_ARRAY, INT4, INT2, INT8, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT4_ARRAY, INT8_ARRAY,
        INT8
    ]
    lock_archived [INT8_ARRAY]
    due_jobs [INT8, INT8]
    next_due [INT8]
    prunable_jobs [INT8, INT8]
    next_prune [INT8]
    prunable_keys [INT8, INT8]
    lock_keys [BYTEA_ARRAY]
    external_ids [INT4_ARRAY, TEXT_ARRAY]
    dependents [INT8, INT8, INT8]
    imported_ids [BYTEA_ARRAY]
    ready_jobs [INT4, INT8]
    jobs_in_state [INT4, INT2, INT8]
    lock_queue [INT8]
    queue_counts_of [INT4_ARRAY]
    queue_counts []
    compact_counts [INT8]
    add_counts [INT4, INT8_ARRAY]
    insert_jobs [
        INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT2_ARRAY,
        INT2_ARRAY, INT2_ARRAY, BOOL_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT8_ARRAY
    ]
    insert_payloads [INT8_ARRAY, INT2_ARRAY, BYTEA_ARRAY]
    copy_payload [INT8, INT8]
    update_jobs [
        INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT2_ARRAY, INT2_ARRAY,
        INT2_ARRAY, BOOL_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8
    ]
    mark_claimed [INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY]
    mark_finished [INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT8_ARRAY]
    copy_jobs []
    copy_payloads []
    mark_heartbeat [INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY]
    restore_from_archive [INT8_ARRAY, INT8]
    remove_jobs [INT8_ARRAY, INT8]
    remove_edges [INT8_ARRAY, INT8_ARRAY]
    insert_edges [INT8_ARRAY, INT8_ARRAY]
    insert_tags [TEXT_ARRAY, INT8_ARRAY]
    remove_tags [TEXT_ARRAY, INT8_ARRAY]
    insert_external_ids [INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8]
    remove_external_ids [INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY]
    insert_keys [BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8]
    update_keys [BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8]
    remove_keys [BYTEA_ARRAY]
    archivable_days [INT8, INT2, INT4, INT8]
    archive [INT8, INT4_ARRAY, INT2, INT4, INT8]
    list_all [INT8, INT8]
    list_jobs [INT2_ARRAY, INT4_ARRAY, INT8, INT8]
    list_tag [TEXT, INT8, INT8]
    list_external_id [INT4_ARRAY, TEXT, INT8]
    newest_jobs_below [INT8_ARRAY]
    oldest_ready [INT4_ARRAY]
    count_ahead [INT4, INT2_ARRAY, INT8, INT8]
    create_archive_partition [INT4]
    drop_archive_partitions [INT8]
    get_jobs [INT8_ARRAY]
    payloads [INT8_ARRAY]
    notify [TEXT, TEXT]
    save_virtual_time [INT8]
    workflows [INT8_ARRAY]
    active_operations [INT8, INT8]
    has_active_operation []
    pending_propagation [INT8]
    insert_workflows [INT8_ARRAY, BOOL_ARRAY, BOOL_ARRAY, BYTEA_ARRAY]
    update_workflows [INT8_ARRAY, BOOL_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8]
    add_member_counts [INT8_ARRAY, INT8_ARRAY]
    delete_empty_workflows [INT8_ARRAY]
    workflow_members [INT8, INT8, INT8]
    list_members [INT8, INT8, INT8]
    insert_members [INT8_ARRAY, INT8_ARRAY]
    remove_members [INT8_ARRAY, TEXT_ARRAY, INT8_ARRAY]
    member_refs [INT8_ARRAY, TEXT_ARRAY]
    set_member_refs [INT8_ARRAY, TEXT_ARRAY, INT8_ARRAY]
    list_workflows [INT8, INT8]
    list_workflows_in [INT8, INT8, INT2]
}
