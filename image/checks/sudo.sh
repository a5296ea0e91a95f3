# shellcheck shell=sh disable=SC2154,SC2164
version "$(sudo -V | head -n 1)"
is "sudo id" "$(sudo -n id -u)" 0
sudo -n sh -c 'echo root >/etc/bellhop-check'
is "the owner of what sudo wrote" "$(stat -c %U /etc/bellhop-check)" root
sudo -n rm /etc/bellhop-check
