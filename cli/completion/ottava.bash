# Completes the arguments of ottava in bash. `ottava completion words` prints the candidates.
_ottava() {
    local IFS=$'\n' words=() word raw value prefix i
    # readline splits words at = and :, so this joins them again.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $i -gt 1 && ($word == [=:] || ${COMP_WORDS[i - 1]} == [=:]) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    word=${words[${#words[@]} - 1]} raw=${COMP_WORDS[COMP_CWORD]}
    [[ $raw == [=:] ]] && raw=
    value=$word
    [[ $word == --*=* ]] && value=${word#*=}
    # readline replaces only `raw`, so the candidates lose what precedes it.
    prefix=${word%"$raw"}
    COMPREPLY=($(compgen -P "${word%"$value"}" -W "$("$1" completion words "${words[@]}" 2>/dev/null |
        cut -f1)" -- "$value"))
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _ottava ottava
