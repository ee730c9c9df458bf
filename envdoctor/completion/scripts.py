"""The completion scripts of the shells."""

from __future__ import annotations

BASH = """\
# envdoctor completion bash
_envdoctor() {
    local IFS=$'\\n'
    COMPREPLY=($(_ENVDOCTOR_COMPLETE=bash _ENVDOCTOR_LINE="${COMP_LINE:0:COMP_POINT}" \\
        _ENVDOCTOR_BREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null))
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _envdoctor envdoctor
"""
ZSH = """\
#compdef envdoctor
# envdoctor completion zsh
_envdoctor() {
    local -a replies assignments
    replies=(${(f)"$(_ENVDOCTOR_COMPLETE=zsh _ENVDOCTOR_LINE="${(j: :)words[1,CURRENT]}" $words[1] 2>/dev/null)"})
    assignments=(${(M)replies:#[^:]#=:*})
    replies=(${replies:|assignments})
    (( $#replies )) && _describe value replies
    (( $#assignments )) && _describe setting assignments -S ''
    (( $#replies + $#assignments )) || _files
}
if [[ $funcstack[1] == _envdoctor ]]; then _envdoctor "$@"; else compdef _envdoctor envdoctor; fi
"""
FISH = """\
# envdoctor completion fish
function __envdoctor_complete
    set -lx _ENVDOCTOR_COMPLETE fish
    set -lx _ENVDOCTOR_LINE (commandline -cp)
    set -l replies (envdoctor 2>/dev/null)
    if test (count $replies) -gt 0
        printf '%s\\n' $replies
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c envdoctor -f -a '(__envdoctor_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
