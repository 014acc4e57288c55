//! Every statement, one file each in `sql/`; `@` is the schema.

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
    open [BOOL, INT8, BOOL, INT8]
    load_settings []
    writable []
    load_names [INT4]
    load_policies [INT4]
    load_queues []
    bump_version []
    add_name [INT4, TEXT]
    add_policy [INT4, BYTEA]
    put_queue [INT4, BYTEA, TEXT]
    remove_queue [INT4]
    claim [INT4, INT8, INT8_ARRAY, INT2, INT8]
    claim_types [INT4, INT8, INT8_ARRAY, INT8_ARRAY]
    claim_flat [INT4, INT8, INT8_ARRAY, INT8]
    claim_flat_types [INT4, INT8, INT8_ARRAY, INT8_ARRAY, INT8]
    claim_lines [INT4_ARRAY, BOOL_ARRAY, INT4_ARRAY, INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8]
    look [INT4, INT8, INT2, INT8]
    lock_jobs [INT8_ARRAY]
    quick_submit [
        INT8, INT8, INT8, INT8, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT2_ARRAY, INT2_ARRAY, INT2_ARRAY, BYTEA_ARRAY,
        INT2_ARRAY, BYTEA_ARRAY, INT4_ARRAY, INT8_ARRAY
    ]
    quick_work [
        INT8, INT8, INT8, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY,
        INT8_ARRAY, BYTEA_ARRAY, INT4, INT2, INT8, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT4_ARRAY, INT8_ARRAY,
        INT8
    ]
    lock_archived [INT8_ARRAY]
    due [INT8, INT8]
    next_due [INT8]
    prunable [INT8, INT8]
    next_prune [INT8]
    purgeable [INT8, INT8]
    keys [BYTEA_ARRAY]
    external_ids [INT4_ARRAY, TEXT_ARRAY]
    dependents [INT8, INT8, INT8]
    foreign_ids [BYTEA_ARRAY]
    in_line [INT4, INT8]
    aside [INT4, INT2, INT8]
    lock_queue [INT8]
    counts_of [INT4_ARRAY]
    counts []
    fold_counts [INT8]
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
    begin_runs [INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8]
    end_runs [INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8]
    copy_jobs []
    copy_payloads []
    heartbeat_jobs [INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8]
    unarchive [INT8_ARRAY, INT8]
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
    over [INT8, INT2, INT4, INT8]
    archive [INT8, INT4_ARRAY, INT2, INT4, INT8]
    list_all [INT8, INT8]
    list [INT2_ARRAY, INT4_ARRAY, INT8, INT8]
    list_tag [TEXT, INT8, INT8]
    list_external_id [INT4_ARRAY, TEXT, INT8]
    newest_below [INT8_ARRAY]
    oldest [INT4_ARRAY]
    ahead [INT4, INT2_ARRAY, INT8, INT8]
    make_day [INT4]
    drop_days [INT8]
    get [INT8_ARRAY]
    payloads [INT8_ARRAY]
    notify [TEXT, TEXT]
    keep_time [INT8]
    workflows [INT8_ARRAY]
    errands [INT8, INT8]
    any_errand []
    news [INT8]
    insert_workflows [INT8_ARRAY, BOOL_ARRAY, BOOL_ARRAY, BYTEA_ARRAY]
    update_workflows [INT8_ARRAY, BOOL_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8]
    add_tallies [INT8_ARRAY, INT8_ARRAY]
    forget_workflows [INT8_ARRAY]
    members [INT8, INT8, INT8]
    list_members [INT8, INT8, INT8]
    insert_members [INT8_ARRAY, INT8_ARRAY]
    remove_members [INT8_ARRAY, TEXT_ARRAY, INT8_ARRAY]
    member_names [INT8_ARRAY, TEXT_ARRAY]
    name_members [INT8_ARRAY, TEXT_ARRAY, INT8_ARRAY]
    list_workflows [INT8, INT8]
    list_workflows_in [INT8, INT8, INT2]
}
