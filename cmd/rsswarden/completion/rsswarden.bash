# Completion of rsswarden for bash: source <(rsswarden completion bash)

_rsswarden() {
	COMPREPLY=()
	# bash parts words at = and : too. Here they are put together again, as they
	# stand between blanks up to the cursor; starts has where each began.
	local -a words=() starts=()
	local -i i
	local rest=${COMP_LINE:0:COMP_POINT} part
	for ((i = 0; i <= COMP_CWORD; i++)); do
		if ((i == 0)) || [[ $rest == [[:space:]]* ]]; then
			words+=("") starts+=("$i")
			rest=${rest#"${rest%%[![:space:]]*}"}
		fi
		part=${COMP_WORDS[i]}
		((i < COMP_CWORD)) || part=$rest
		words[-1]+=$part
		rest=${rest#"$part"}
	done

	# What is quoted is asked for without, and the quote stays on the line.
	local last=${words[-1]} quote=
	case $last in
	[\"\']*) quote=${last:0:1} last=${last:1} ;;
	*) last=${last//\\/} ;;
	esac
	words=("${words[@]:1}")
	((${#words[@]})) || return
	for ((i = 0; i < ${#words[@]} - 1; i++)); do
		part=${words[i]}
		case $part in
		[\"\']*[\"\']) part=${part:1:-1} ;;
		*) part=${part//\\/} ;;
		esac
		words[i]=$part
	done
	words[-1]=$last

	local word kind=none
	local -a found=()
	while IFS= read -r word; do
		case $word in
		:*) kind=${word#:} ;;
		*) found+=("${word%%$'\t'*}") ;;
		esac
	done < <("${COMP_WORDS[0]}" completion-words -- "${words[@]}" 2>/dev/null)

	case $kind in
	command*)
		# The user's command completes as it does alone.
		i=${starts[${kind#command }+1]}
		if declare -F _command_offset >/dev/null; then
			_command_offset $i
		elif ((i >= COMP_CWORD)); then
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -c -- "$last" | sort -u)
		else
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "$last")
		fi
		return
		;;
	files | dirs)
		local name=$last
		[[ $name != --*=* ]] || name=${name#*=}
		[[ $kind != files ]] || kind=-f
		[[ $kind != dirs ]] || kind=-d
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen $kind -- "$name")
		if [[ -z $quote && $name == *[=:]* ]]; then
			COMPREPLY=("${COMPREPLY[@]#"${name%"${name##*[=:]}"}"}")
		fi
		;;
	esac

	# What stands in front of the last = or : is no part of what bash replaces.
	local front=
	if [[ -z $quote && $last == *[=:]* ]]; then
		front=${last%"${last##*[=:]}"}
	fi
	for word in "${found[@]}"; do
		[[ $word == "$last"* ]] || continue
		[[ $word != *[=:] ]] || compopt -o nospace
		word=${word#"$front"}
		# bash itself quotes what may be files.
		[[ -n $quote || $kind == -? ]] || printf -v word %q "$word"
		COMPREPLY+=("$word")
	done
}

complete -F _rsswarden rsswarden
