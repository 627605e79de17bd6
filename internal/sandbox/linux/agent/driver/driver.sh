# The bash kernel: reads requests over its connection, each a text for eval of 512
# bytes, and runs programs where they stand: at the top level of this very shell,
# whose variables, functions and folder stay. Read once, at the start.
#
# The driver's descriptors are 240, the connection; 241 and 242, where a program's
# output goes; 243 and 244, /dev/null to read and to write; 245 is a program's input.
# What bash puts aside while something is redirected it closes when it starts a
# program, and copies of that are closed as well: what is put aside here, as 10 to 14.
{ { exec 240>&10 241>&11 242>&12 243<&13 244>&14; } 4>&- 1>&- 2>&- 0<&- 5>&-; } 5>/dev/null
exec 3<&- 4>&-
__pd_defaults=$(builtin set +o)
__pd_options=$SHELLOPTS
# Where what set -x shows of the driver goes; without it nothing has to be redirected.
declare -A __pd_quiet=([-]=2 [-x]=244)
# The line of the program's eval is the first of the text: bash counts from there.
__pd_loop='while LC_ALL=C IFS= builtin read -r -N 512 -u 240 __pd_text; do builtin eval "$__pd_text"; case $__pd_op in exec | feed) __pd_explicit=; builtin trap __pd_stop INT; [[ $__pd_op == exec ]] || exec 245<"$__pd_in"; builtin printf "b %s\n" "$__pd_number" >&240; case $__pd_op in exec) builtin eval "$__pd_code" <&243 >&241 2>&242 ;; feed) builtin eval "$__pd_code" <&245 >&241 2>&242 245<&- ;; esac
{ __pd_status=$?; builtin trap - DEBUG ERR RETURN; [[ $SHELLOPTS == "$__pd_options" ]] || builtin eval "$__pd_defaults"; } 2>&"${__pd_quiet[-${-//[!x]}]}"; __pd_end ;; inspect) __pd_inspect ;; awaken) [[ ! -v RANDOM ]] || RANDOM=$((16#$__pd_code)); builtin printf "a %s 0 %s inspected\n" "$__pd_number" "$__pd_self" >&240 ;; hello) builtin printf "a %s 0 %s inspected\n" "$__pd_number" "$__pd_self" >&240 ;; esac; done'
# Whatever ends the shell comes here: exit, an error of an expansion, set -e, an
# interrupt. A copy of the shell goes on where it was, and the shell itself ends. A
# signal for what the shell has just forked, which is no other program yet, comes here
# as well: that ends by it.
__pd_exit='__pd_status=${__pd_chosen:-$?}; [[ $BASHPID != "$__pd_self" ]] || { { __pd_chosen=; builtin trap - DEBUG ERR RETURN; builtin eval "$__pd_defaults"; } 2>&244; builtin set -m; { builtin set -m; builtin set +m; __pd_self=$BASHPID; __pd_arm; __pd_ended=1; __pd_end; builtin eval "$__pd_loop"; builtin trap - EXIT; builtin exit 0; } & builtin set +m; }'
# While bash traps EXIT, it notes signals that would end it, and loses those that
# what it has just forked gets before it is another program: nearly each job in a box
# that is killed at once. What it knows to be trapped meanwhile it leaves alone.
__pd_arm() {
  builtin trap : TERM HUP
  builtin trap 'builtin eval "$__pd_exit"' EXIT
  builtin trap - TERM HUP
}
__pd_stop() { __pd_explicit=interrupted; exit 130; }
__pd_end() {
  builtin trap '' INT
  [[ $__pd_op == exec ]] || exec 245<&-
  if [[ -n $__pd_trap ]]; then
    local __pd_do=$__pd_trap __pd_term=$(builtin trap -p TERM)
    __pd_trap=
    builtin trap '' TERM # scripts do "kill 0" here
    builtin eval "$__pd_do" <&243 >&241 2>&242
    builtin eval "${__pd_term:-builtin trap - TERM}"
  fi
  builtin printf 'a %s %s %s %s\n' "$__pd_number" "$__pd_status" "$__pd_self" "${__pd_explicit:-${__pd_ended:+ended}}" >&240
  __pd_ended=
}
# exit is a choice of the program's, and no error of it.
# It ends the shell as an error of an expansion does, which undoes redirections on
# the way, unlike exit itself; a copy of the shell simply exits.
exit() {
  builtin set -- "${1-$?}"
  [[ $BASHPID == "$__pd_self" ]] || builtin exit "$1"
  [[ $1 == *[!0-9]* ]] && __pd_chosen=2 || __pd_chosen=$(( 10#$1 & 255 ))
  [[ -n $__pd_explicit ]] || __pd_explicit=exit
  { : "${__pd_never?}"; } 2>/dev/null
}
# What a program traps EXIT with is done when the program ends, not the shell.
trap() {
  if [[ $BASHPID != "$__pd_self" || $# -lt 2 || $1 == -[lp] ]]; then
    builtin trap "$@"
    return
  fi
  local __pd_arg=$1 __pd_signal
  [[ $1 != -- ]] || { builtin shift; __pd_arg=$1; }
  builtin shift
  for __pd_signal; do
    case $__pd_signal in
      EXIT | exit | 0) [[ $__pd_arg == - ]] && __pd_trap= || __pd_trap=$__pd_arg ;;
      *) builtin trap -- "$__pd_arg" "$__pd_signal" || return ;;
    esac
  done
}
# Tells of each variable that the shell did not have at first.
__pd_inspect() {
  local __pd_name __pd_kind __pd_count=0 __pd_value
  while IFS= builtin read -r __pd_name; do
    [[ $__pd_known != *" $__pd_name "* && $__pd_name != __pd_* ]] || continue
    (( __pd_count++ < 200 )) || break
    __pd_kind=${!__pd_name@a} __pd_value=
    case $__pd_kind in
      *[aA]*) builtin declare -n __pd_all=$__pd_name; __pd_value="(${#__pd_all[@]} elements) ${__pd_all[*]:0:20}"; builtin unset -n __pd_all ;;
      *) __pd_value=${!__pd_name} ;;
    esac
    builtin printf 'v %s %s %s %q\n' "$__pd_number" "$__pd_name" "${__pd_kind:--}" "${__pd_value:0:119}" >&240
  done < <(builtin compgen -v)
  builtin printf 'a %s 0 %s inspected\n' "$__pd_number" "$__pd_self" >&240
}
__pd_chosen= __pd_trap= __pd_ended= __pd_explicit= __pd_op= __pd_number= __pd_in= __pd_code= __pd_status= __pd_text= __pd_self=$BASHPID
__pd_known=" $(builtin compgen -v) BASH_REMATCH PIPESTATUS MAPFILE REPLY OLDPWD _ FUNCNAME " __pd_known=${__pd_known//$'\n'/ }
builtin unset __pd_boot
__pd_arm
builtin trap '' INT
