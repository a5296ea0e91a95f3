# shellcheck shell=sh disable=SC2154,SC2164
version "$(ruby --version)"
cat >a.rb <<'RB'
require "json"
require "digest"
puts({ "sum" => (1..9).sum - 3, "sha" => Digest::SHA256.hexdigest("box")[0, 8] }.to_json)
RB
is "the script" "$(ruby a.rb)" "{\"sum\":42,\"sha\":\"$(printf box | sha256sum | cut -c 1-8)\"}"
mkdir -p lib
cat >boxgem.gemspec <<'RB'
Gem::Specification.new do |s|
  s.name = "boxgem"
  s.version = "1.2.3"
  s.summary = "a gem"
  s.authors = ["a box"]
  s.files = ["lib/boxgem.rb"]
end
RB
printf 'module Boxgem\n  ANSWER = 42\nend\n' >lib/boxgem.rb
gem build --quiet boxgem.gemspec >/dev/null 2>&1
gem install --user-install --local --no-document boxgem-1.2.3.gem >log 2>&1 || fail "$(tail -n 1 log)"
is "the installed gem" "$(ruby -e 'require "boxgem"; puts Boxgem::ANSWER')" 42
