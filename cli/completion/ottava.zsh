#compdef ottava
# Completes the arguments of ottava in zsh. `ottava completion words` prints the candidates.
_ottava() {
    local -a lines unfinished finished
    lines=("${(@f)$(${(Q)words[1]} completion words "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
    lines=("${(@)${(@)lines:#}//:/\\:}")
    lines=("${(@)lines/$'\t'/:}")
    [[ $PREFIX == --*=* ]] && compset -P '*='
    (( $#lines )) || { _files; return }
    unfinished=("${(@M)lines:#*=:*}")
    finished=("${(@)lines:#*=:*}")
    (( $#unfinished )) && _describe ottava unfinished -S ''
    (( $#finished )) && _describe ottava finished
}
if [[ $funcstack[1] == _ottava ]]; then _ottava "$@"; else compdef _ottava ottava; fi
