# What a shell beside a job reads: a person's own settings, then the job's environment again.
_job=$(export -p)
[ -f ~/.bashrc ] && . ~/.bashrc
_own=$PATH
eval "$_job"
PATH=$PATH:$_own
unset _job _own
