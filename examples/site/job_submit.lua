-- job_submit.lua: a batch script in a shell starts itself again under rsswarden, for sites that want
-- neither the plugin nor a TaskProlog. JobSubmitPlugins=lua; beside slurm.conf of slurmctld.
-- Python and csh scripts, srun and salloc are left alone. sacct -B shows the script with this line.
local bin = "/usr/bin/rsswarden"
-- The mark is the job's number: a plain one would be inherited by the jobs that it submits.
-- A script may have set -u in its first line, and one that cannot be executed would end it.
local line = '[ "${RSSWARDEN_SITE:-}" = "$SLURM_JOB_ID" ] || [ "${RSSWARDEN:-}" = off ] || ! { ' .. bin ..
	' --version; } >/dev/null 2>&1 || { RSSWARDEN_SITE=$SLURM_JOB_ID; export RSSWARDEN_SITE; RSSWARDEN_BY=site exec ' .. bin .. ' run -- "$0" "$@"; }\n'

function slurm_job_submit(job_desc, part_list, submit_uid)
	local s = job_desc.script
	if s == nil or s == "" then return slurm.SUCCESS end
	local head, rest = s:match("^(#![^\n]*\n)(.*)$")
	local program = head and (head:match("^#!%s*/usr/bin/env%s+(%S+)") or head:match("^#!%s*/%S*/([^/%s]+)"))
	local shells = { sh = true, bash = true, dash = true, ksh = true, zsh = true }
	if shells[program] and not s:find("rsswarden run", 1, true) then
		job_desc.script = head .. line .. rest
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end

return slurm.SUCCESS
