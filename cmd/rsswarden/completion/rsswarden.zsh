#compdef rsswarden
# Completion of rsswarden for zsh: put it into a directory of $fpath as _rsswarden.

_rsswarden() {
	local line kind=none word
	local -a asked ends values shown
	asked=("${(@Q)words[2,CURRENT-1]}" "${PREFIX}")
	asked[-1]=${asked[-1]#[\"\']}
	asked[-1]=${(Q)asked[-1]}
	for line in "${(@f)$(_call_program rsswarden ${(q)words[1]} completion-words -- ${(@qq)asked} 2>/dev/null)}"; do
		case $line in
		(:*) kind=${line#:} ;;
		(?*)
			word=${line%%$'\t'*}
			if [[ $word == *[=:] ]]; then
				ends+=("$word")
			else
				values+=("$word")
				shown+=("$word${${line#"$word"}:+  -- ${line#*$'\t'}}")
			fi
			;;
		esac
	done

	case $kind in
	(command*)
		local -i at=${kind#command }
		words=("${(@)words[at+2,-1]}")
		((CURRENT -= at + 1))
		_normal
		return
		;;
	esac
	local -i status_=1
	((${#ends} == 0)) || compadd -S '' -a ends && status_=0
	((${#values} == 0)) || compadd -l -d shown -a values && status_=0
	case $kind in
	(files) [[ $PREFIX != --*=* ]] || compset -P '*='; _files && status_=0 ;;
	(dirs) [[ $PREFIX != --*=* ]] || compset -P '*='; _files -/ && status_=0 ;;
	esac
	return status_
}

if [[ $funcstack[1] == _rsswarden ]]; then
	_rsswarden "$@"
else
	compdef _rsswarden rsswarden
fi
