#!/bin/sh
# e2b_box.sh COMMAND...: runs the command as root in a mount namespace of its own, with the set-up of E2B's guests: a
# user `user` with a fresh home, and a sudo without a password. The command may not set the clock: a late /init would
# set the machine's clock back.
set -eu

if [ "${1:-}" != --inside ]; then
    exec unshare --mount --propagation private "$0" --inside "$@"
fi
shift

# Other homes stay: this very file may be in one. The new mount gives access to the directories that it covers.
cd /home
mount -t tmpfs -o mode=755 e2b /home
for home in *; do
    if [ -d "$home" ] && [ "$home" != user ]; then
        mkdir "/home/$home"
        mount --no-canonicalize --rbind "./$home" "/home/$home" || [ ! -d "./$home" ] # it may go meanwhile
    fi
done
mkdir -p /home/user /home/.e2b/bin
# A copy of the directory: a mount over a file ends when somebody on the machine replaces that, as useradd does.
cp -a /etc /home/.e2b/etc
mount --bind /home/.e2b/etc /etc
sed -i '/^user:/d' /etc/passwd /etc/group
echo 'user:x:61000:61000::/home/user:/bin/bash' >>/etc/passwd
echo 'user:x:61000:' >>/etc/group
cp /etc/hosts /home/.e2b/hosts
mount --bind /home/.e2b/hosts /etc/hosts
chown 61000:61000 /home/user
# No password, and no root: tests check the environment that it resets.
printf '#!/bin/sh\nexec env -i PATH=/usr/local/bin:/usr/bin:/bin "$@"\n' >/home/.e2b/bin/sudo
chmod 755 /home/.e2b/bin/sudo
ln -s /usr/bin/python3 /home/.e2b/bin/python
mount --bind /home/.e2b/bin /usr/local/games
[ ! -e /usr/bin/sudo ] || mount --bind /home/.e2b/bin/sudo /usr/bin/sudo
# No directory of root's own, which `user` can't read.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022
cd /
exec setpriv --bounding-set -sys_time --inh-caps -sys_time "$@"
