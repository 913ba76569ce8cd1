# Completes the arguments of ottava in fish. `ottava completion words` prints the candidates.
function __ottava_words
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l prefix (string match -r -- '^--[^=]*=' $current)
    $words[1] completion words $words[2..-1] "$current" 2>/dev/null | string replace -r '^' -- "$prefix"
end
complete -c ottava -a '(__ottava_words)'
complete -c ottava -n __fish_use_subcommand -f
