# Completion of rsswarden for fish: put it into ~/.config/fish/completions.

function __rsswarden_complete
	set -l typed (commandline -opc)
	set -l program $typed[1]
	set -e typed[1]
	set -l last (commandline -ct | string replace -r '^["\']' '')
	set -l kind none
	for line in ($program completion-words -- $typed "$last" 2>/dev/null)
		switch $line
			case ':*'
				set kind (string sub -s 2 -- $line)
			case '*'
				printf '%s\n' $line
		end
	end
	switch $kind
		case 'command *'
			# The user's command completes as it does alone.
			set -l at (math (string replace 'command ' '' -- $kind) + 1)
			complete -C (string join ' ' -- (string escape -- $typed[$at..-1]) (commandline -ct))
		case files dirs
			set -l name (string replace -r '^--[a-z-]+=' '' -- $last)
			set -l front (string replace -r '^(--[a-z-]+=)?.*$' '$1' -- $last)
			for file in (complete -C "'' $name" | string replace -r '\t.*' '')
				test $kind = files; or string match -q '*/' -- $file; or continue
				printf '%s\n' $front$file
			end
	end
end

complete -c rsswarden -f -a '(__rsswarden_complete)'
