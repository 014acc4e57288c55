SELECT nextval('@.system_revisions')
