# shellcheck shell=sh disable=SC2154,SC2164
version "$(bundle --version)"
# A local gem: no network is needed.
mkdir -p greeting/lib
cat >greeting/greeting.gemspec <<'END'
Gem::Specification.new do |s|
  s.name = 'greeting'
  s.version = '1.2.3'
  s.summary = 'a word'
  s.authors = ['box']
  s.files = ['lib/greeting.rb']
end
END
echo "GREETING = 'hello'" >greeting/lib/greeting.rb
printf "source 'https://rubygems.org'\ngem 'greeting', path: 'greeting'\n" >Gemfile
bundle install --local --quiet >log 2>&1 || fail "bundle install: $(tail -n 1 log)"
grep -q '^    greeting (1.2.3)$' Gemfile.lock || fail "Gemfile.lock has not the gem"
cat >run.rb <<'END'
require 'greeting'
puts "#{GREETING} #{Gem.loaded_specs['greeting'].version}"
END
is "what runs with the bundle" "$(bundle exec ruby run.rb)" "hello 1.2.3"
