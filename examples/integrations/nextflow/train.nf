// A training that comes to its memory limit is ended with status 137, and tried again
// with more. Where Nextflow submits to Slurm, which gives the job task.memory, leave
// --limit out.
process train {
    memory { 300.MB * 2 ** (task.attempt - 1) }
    errorStrategy { task.exitStatus == 137 ? 'retry' : 'terminate' }
    maxRetries 3

    input:
    val seed

    output:
    path 'model'

    script:
    """
    rsswarden run --limit ${task.memory.toMega()} --at '95%:stop' -- python3 train.py ${seed} model
    """
}

workflow {
    train(channel.of(1))
}
