package main

// appExamples and examplesOf are what --help of each command ends with, and the manual
// has too. Each is a line that a test reads as the program does.
var appExamples = []string{
	"srun rsswarden run -- python train.py     # in a batch script",
	"rsswarden man | man -l -                  # all of it",
}

var examplesOf = map[string][]string{
	"run": {
		"srun rsswarden run -- python train.py",
		"rsswarden run --limit 90% --at '95%:stop' -- python train.py",
	},
	"attach": {
		"rsswarden attach 4711",
		"rsswarden attach --job 118 --at '95%:signal=USR1'",
	},
	"limits": {
		"rsswarden limits",
		"srun --jobid 118 --overlap rsswarden limits --json",
		"rsswarden limits --pid 4711",
	},
	"status": {
		"rsswarden status",
		"rsswarden status --job 118 --json",
	},
	"top": {
		"rsswarden top --job 118 --sort rss",
		"rsswarden top --once --filter worker",
	},
	"recycle": {
		"rsswarden recycle --rank 0",
		"rsswarden recycle --job 118 --node n3",
	},
	"trim": {
		"rsswarden trim --pid 4711 --dry-run",
		"rsswarden trim --job 118 --rank 0",
	},
	"checkpoint": {
		"rsswarden checkpoint --rank 0",
		"rsswarden checkpoint --job 118 --signal USR1",
	},
	"report": {
		"rsswarden report",
		"rsswarden report 118 --html report.html",
		"rsswarden report --advise ~/jobs/*/.rsswarden",
	},
	"replay": {
		"rsswarden replay 118 --limit 4G",
		"rsswarden replay 118 --at none --at '90%:trim' --at '97%:stop'",
	},
	"doctor": {
		"srun --mem 4G rsswarden doctor",
		"rsswarden doctor ~/venv/bin/python",
	},
	"man": {
		"rsswarden man | man -l -",
		"rsswarden man >~/.local/share/man/man1/rsswarden.1",
	},
	"completion": {
		"source <(rsswarden completion bash)            # in ~/.bashrc",
		"rsswarden completion zsh >~/.zfunc/_rsswarden  # a directory of $fpath",
		"rsswarden completion fish >~/.config/fish/completions/rsswarden.fish",
	},
}
