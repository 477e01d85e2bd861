"""Words that are numbers, months, weekdays or frequencies in English, Spanish and Catalan. Pure data."""


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


NUMBER_WORDS = {
    "en": _listed(
        """
        two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
        nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion half third
        quarter twice double
        """
    ),
    "es": _listed(
        """
        dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete dieciocho
        diecinueve veinte veintiuno veintiún veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete
        veintiocho veintinueve treinta cuarenta cincuenta sesenta setenta ochenta noventa cien ciento doscientos
        doscientas trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos mil millón
        millones mitad tercio cuarto doble
        """
    ),
    "ca": _listed(
        """
        dos dues tres quatre cinc sis set vuit nou deu onze dotze tretze catorze quinze setze disset divuit dinou vint
        trenta quaranta cinquanta seixanta setanta vuitanta noranta cent cents dos-cents mil milió milions meitat terç
        quart vuitè doble
        """
    ),
}
MONTHS = {
    "en": _listed("january february march april may june july august september october november december"),
    "es": _listed("enero febrero marzo abril mayo junio julio agosto septiembre setiembre octubre noviembre diciembre"),
    "ca": _listed("gener febrer març abril maig juny juliol agost setembre octubre novembre desembre"),
}
# Times that are not written with a number: weekdays, and how often.
TIMES = {
    "en": _listed(
        """
        monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays
        sundays daily weekly monthly quarterly yearly annually annual every each day week month year years once twice
        today midnight noon spring summer autumn winter always never after before when until immediately
        """
    ),
    "es": _listed(
        """
        lunes martes miércoles jueves viernes sábado sábados domingo domingos diario diaria semanal mensual trimestral
        anual cada día semana mes trimestre año años vez veces medianoche mediodía primavera verano otoño invierno
        siempre nunca después antes cuando inmediatamente
        """
    ),
    "ca": _listed(
        """
        dilluns dimarts dimecres dijous divendres dissabte dissabtes diumenge diumenges diari diària setmanal mensual
        trimestral anual cada dia setmana mes trimestre any anys vegada vegades mitjanit migdia primavera estiu tardor
        hivern sempre mai després abans quan immediatament
        """
    ),
}
# What a duration is measured in, in all our languages.
TIME_UNITS = _listed(
    """
    day days week weeks month months year years hour hours minute minutes second seconds quarter quarters permanently
    indefinitely immediately día días semana semanas mes meses año años hora horas minuto minutos segundo segundos
    trimestre trimestres anualidades dia dies setmana setmanes mesos any anys hores minut minuts segon segons
    """
)
EVERY_NUMBER_WORD = frozenset().union(*NUMBER_WORDS.values())
EVERY_MONTH = frozenset().union(*MONTHS.values())
EVERY_TIME = frozenset().union(*TIMES.values()) | EVERY_MONTH


def number_words(language: str) -> frozenset[str]:
    """Number words of a language; of all ours when it is another."""
    return NUMBER_WORDS.get(language, EVERY_NUMBER_WORD)


def months(language: str) -> frozenset[str]:
    """Month names of a language; of all ours when it is another."""
    return MONTHS.get(language, EVERY_MONTH)


def times(language: str) -> frozenset[str]:
    """Words of time of a language; of all ours when it is another."""
    return TIMES.get(language, EVERY_TIME) | months(language)
