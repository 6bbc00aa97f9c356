#!/usr/bin/perl
# Reads the text of gcide.dict, writes English prose: see gcide_text.sh.
#
# An entry opens in column 0 with  Headword \Pro*nun"ci*a`tion\ (pronunciation), part of speech [etymology] (Field)
# and goes on in indented blocks: senses, quotations, notes, synonyms. Kept: headword, part of speech, senses, quotations
# with their authors, notes, synonyms. Dropped: pronunciations, etymologies, fields, sources, usage tags, sense numbers.
use strict;
use warnings;

my %part = (
  n => 'noun', a => 'adjective', adj => 'adjective', adv => 'adverb', prep => 'preposition', pron => 'pronoun',
  conj => 'conjunction', interj => 'interjection', 'v. t' => 'verb', 'v. i' => 'verb', v => 'verb',
  'p. p' => 'participle', 'p. pr' => 'participle', 'p. a' => 'adjective');

my $parts = join '|', map { quotemeta } sort { length $b <=> length $a } keys %part;

# Letters written as [mark letter]; a mark without a letter of its own (macron, breve, dots) leaves the bare letter.
my %letter = (
  ae => 'æ', AE => 'Æ', oe => 'œ', OE => 'Œ', eth => 'ð', thorn => 'þ', deg => '°', root => '√', sect => '§', para => '¶',
  pounds => '£', times => '×', middot => '·', frac12 => '½', frac14 => '¼', prime => "'", bprime => "'", sharp => '♯',
  flat => '♭', add => "'", asl => '', imac => 'i', aum => 'ä', ng => 'ng', th => 'th', udd => 'u', yogh => 'gh',
  sec => '"', min => "'", alpha => 'alpha', beta => 'beta', gamma => 'gamma', delta => 'delta', Delta => 'Delta',
  pi => 'pi', mu => 'mu', theta => 'theta', phi => 'phi', Lambda => 'Lambda', nbsp => ' ', rarr => '->', break => '');
my %marked = (
  "'" => { qw(a á e é i í o ó u ú y ý A Á E É I Í O Ó U Ú) },
  '`' => { qw(a à e è i ì o ò u ù A À E È I Ì O Ò U Ù) },
  '"' => { qw(a ä e ë i ï o ö u ü y ÿ A Ä E Ë I Ï O Ö U Ü) },
  '^' => { qw(a â e ê i î o ô u û A Â E Ê I Î O Ô U Û) },
  '~' => { qw(n ñ a ã o õ N Ñ) },
  ',' => { qw(c ç C Ç) });

# Bracketed words that tag a sense rather than belong to a sentence.
my %tag = map { $_ => 1 } qw(obs Obs slang Slang cant Cant poetic Poetic Poet low Low archaic Archaic R Rare rare Scotch
  British India Ireland Jocose Jocular acronym Acronym initialism Initialism Colloq colloq Collog vulgar Vulgar Recent
  Canada China Turkey Stedman Modern Law France English American Local Provincial Technical informal formal);

sub letters {
  my ($s) = @_;
  $s =~ s/\[([A-Za-z]+\d*)\]/exists $letter{$1} ? $letter{$1} : "[$1]"/ge;
  $s =~ s/\[(['`"^~,=.*_-])([A-Za-z])\]/exists $marked{$1} && exists $marked{$1}{$2} ? $marked{$1}{$2} : $2/ge;
  $s =~ s/\[(?:[=.*^-](oo|ae|oe)|(oo)\^)\]/$1 || $2/ge;
  $s =~ s/\[([a-z])[\^~-]\]/$1/g;
  return $s;
}

# Square brackets, innermost first: etymologies, sources and tags go; words an editor put into a sentence stay.
sub brackets {
  my ($s) = @_;
  1 while $s =~ s{\[([^\[\]]*)\]}{
    my $inside = $1;
    $inside =~ /^[A-Za-z][A-Za-z' ]*$/ && !$tag{$inside} && $inside !~ /^[A-Z]{2,}$/ && $inside !~ /Webster|WordNet|Eng|Prov/
      && length($inside) < 40 ? $inside : ''}ge;
  $s =~ s/[\[\]]//g;
  return $s;
}

# Braces mark a word as an entry of its own or carry its syllables: the bare word remains.
sub braces {
  my ($s) = @_;
  $s =~ s{\{([^{}]*)\}}{my $word = $1; $word =~ tr/*"`//d if $word =~ /[*"`]/; $word}ge;
  $s =~ tr/{}//d;
  $s =~ s{([A-Za-z]+["`]?(?:\*[A-Za-z]+["`]?)+)}{(my $word = $1) =~ tr/*"`//d; $word}ge;
  return $s;
}

sub tidy {
  my ($s) = @_;
  $s =~ tr/\\//d;
  $s =~ s/\((?:[`'"]?\?[^()]*|[^()]*\*[^()]*)\)//g;   # unreadable or syllabled pronunciation
  $s =~ s/\([A-Z][A-Za-z\x80-\xff.,& ]{0,40}\.\)//g;  # field: (Bot.), (Gr. Antiq.)
  $s =~ s/^((?:[A-Z][^.,;()]{0,40}[.,]?)?) ?\([A-Z][a-z]+\)/$1/; # field without a full stop: (Law), (Mining)
  $s =~ s/ \([A-Z][a-z]+\)(?=,)//g;
  $s =~ s/\?{2,}//g;
  $s =~ s/\s+/ /g;
  $s =~ s/ ([,.;:])(?=[ ,.;]|$)/$1/g;
  $s =~ s/,(?:\s*,)+/,/g;
  $s =~ s/,\s*([.;:])/$1/g;
  $s =~ s/([.;])\s+\1(?= |$)/$1/g;
  $s =~ s/^[\s,;.:]+//;
  $s =~ s/\s+$//;
  return $s;
}

my @entry;
my $started = 0;

sub finish {
  return unless @entry;
  my $text = letters(join('', @entry));
  @entry = ();
  # The header may wrap inside its etymology, so brackets go first; then it is the first line.
  # After a source tag some entries carry the next entry's word.
  $text =~ s/\[(?:PJC|[^\[\]]*(?:Webster|WordNet|PJC)[^\[\]]*)\](?: \S+(?=\n\s*\n|\n*$))?//g;
  $text = brackets($text);
  return unless $text =~ s/^([^\\]+?)\s*\\[^\\]*\\//;
  my $word = $1;
  $word =~ s/\s+/ /g;
  $word =~ s/,$//;
  $text =~ s/\\[^\\]*\\//g;
  my ($head, $rest) = $text =~ /^([^\n]*)\n?(.*)$/s;
  # The pronunciation in parentheses may wrap, or stand on the second line together with the part of speech.
  if (($head =~ tr/(//) > ($head =~ tr/)//) && $rest =~ s/^([^\n]*)(?:\n|$)//) { $head .= $1; }
  $head =~ s/\([^()]*\)//g;
  if ($head !~ /\b(?:$parts)\./o && $rest =~ s/^\s{1,4}(?:\([^()]*\))?[\s,;]*((?:$parts)\.)[^\n]*\n//o) { $head .= " $1"; }
  my $speech = $head =~ /\b($parts)\./o ? ", $part{$1}" : '';
  my @paragraphs;
  for my $block (split /\n\s*\n/, $rest) {
    # Within a block every numbered or lettered sense opens a paragraph of its own.
    for my $piece (split /\n(?=\s*(?:\d+\.|\([a-z]\)) )/, $block) {
      $piece =~ s/^\s*(?:\d+\.|\([a-z]\)) //;
      $piece =~ s/^\s*\([a-z]\) //;
      $piece =~ s/^\s*Syn:/Synonyms:/;
      $piece = tidy(braces($piece));
      push @paragraphs, $piece if $piece =~ /[A-Za-z]{2}/ && $piece ne 'Note:';
    }
  }
  return unless @paragraphs;
  $paragraphs[0] = tidy(braces($word)) . "$speech. " . ucfirst($paragraphs[0]);
  print join("\n", @paragraphs), "\n\f\n";
}

while (my $line = <STDIN>) {
  # Three stray Latin-1 bytes in a text that is otherwise ASCII.
  $line =~ s/\xe7/[,c]/g;
  $line =~ s/\x92/'/g;
  $line =~ s/[\x80-\xff]/'/g;
  if ($line =~ /^[^\s\[\\{][^\\]*\\[^\\]+\\/) {
    finish();
    $started = 1;
  }
  push @entry, $line if $started;
}
finish();
die "gcide_text: no dictionary entry found in the input\n" unless $started;
